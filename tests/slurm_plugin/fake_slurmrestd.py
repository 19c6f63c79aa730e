"""A slurmrestd on a Unix socket that answers with what was recorded of a real one."""

import json
import re
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any


class FakeSlurmrestd(socketserver.ThreadingUnixStreamServer):
    """Answers by method and path; `posted` keeps (path, body) of every change.

    `answers` maps a pattern of `METHOD PATH` to a recording: its status, then its body.
    """

    daemon_threads = True

    def __init__(self, socket: Path, answers: dict[str, str]) -> None:
        super().__init__(str(socket), _Handler)
        self.answers = answers
        self.posted: list[tuple[str, Any]] = []

    def answer(self, asked: str) -> str:
        """The recording for what was asked; one that nobody told of is a test's mistake."""
        for pattern, told in self.answers.items():
            if re.fullmatch(pattern, asked):
                return told
        return f"418\nthe fake knows no {asked}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeSlurmrestd

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posted.append((self.path, json.loads(body)))
        self._answer()

    def _answer(self) -> None:
        status, _, text = self.server.answer(f"{self.command} {self.path}").partition("\n")
        body = text.encode()
        self.send_response(int(status))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: a test's output is its own."""

    def address_string(self) -> str:
        """A Unix socket's peer has no address."""
        return "unix"


@contextmanager
def recorded(folder: Path, socket: Path) -> Iterator[FakeSlurmrestd]:
    """A server that answers with the recordings of one release."""
    told = {path.stem: path.read_text() for path in folder.glob("rest_*.http")}
    answers = {
        "GET /openapi/v3": told["rest_openapi"],
        "GET /slurm/v[0-9.]+/ping/": told["rest_ping"],
        "GET /slurm/v[0-9.]+/nodes/": told["rest_nodes"],
        r"GET /slurm/v[0-9.]+/jobs/(\?.*)?": told["rest_jobs"],
        "POST /slurm/v[0-9.]+/job/[0-9]+": told["rest_changed"],
    }
    server = FakeSlurmrestd(socket, answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
