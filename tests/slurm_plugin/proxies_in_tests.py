"""nginx and Apache in front of a page's process, by the files that docs/web.md shows.

Names, ports and passwords are the test's; everything else is the page's.
"""

import base64
import grp
import hashlib
import http.client
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "web.md").read_text(encoding="utf-8")
#: Debian has them where only root's PATH leads.
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
APACHE_MODULES = Path("/usr/lib/apache2/modules")
#: Who may see everything, and who may not; every Unix has these two.
OPERATOR, USER = "daemon", "nobody"
PASSWORDS = {OPERATOR: "one", USER: "two", f"{USER}@example.edu": "three"}
SECRET = "0123456789abcdef0123456789abcdef"
WEB = "import sys; from slurm_plugin.cli import cli; cli(['web', *sys.argv[1:]])"
#: Seconds within which whatever is waited for has surely happened, on a busy machine, too.
SURELY_S = 60.0


# -- what the page says ----------------------------------------------------


def section(heading: str) -> str:
    return PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def blocks(heading: str, kind: str) -> list[str]:
    """The fenced texts of a section that are of this kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```", section(heading), re.M | re.S)


def block(heading: str, kind: str, holds: str = "") -> str:
    [found] = [one for one in blocks(heading, kind) if holds in one]
    return found


def filled(text: str, names: dict[str, str]) -> str:
    """The page's text with the names of this test; each of them stands in it."""
    for name, ours in names.items():
        assert name in text, name
        text = text.replace(name, ours)
    return text


def environment(heading: str, names: dict[str, str]) -> dict[str, str]:
    """/etc/default/gputopo-web, as systemd reads it."""
    text = filled(block(heading, "", "GPUTOPO_WEB_OPTIONS="), names)
    return dict(word.split("=", 1) for word in shlex.split(text))


#: A proxy that goes on after a body has this to answer, and closes the connection.
LAST = b"GET /gputopo/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


# -- the processes -----------------------------------------------------------


@dataclass
class Behind:
    """A proxy in front of the page, both as processes."""

    port: int
    #: GPUTOPO_WEB_OPTIONS and GPUTOPO_WEB_SECRET.
    settings: dict[str, str]
    #: Where the page itself listens.
    own: str | tuple[str, int]
    #: What the proxy says where the page's process is gone.
    gone: int
    page: "subprocess.Popen[bytes] | None" = field(default=None, init=False)

    def start(self) -> None:
        words = shlex.split(self.settings["GPUTOPO_WEB_OPTIONS"])
        path = os.pathsep.join([str(ROOT), *sys.path])
        self.page = subprocess.Popen(
            [sys.executable, "-c", WEB, "--demo", *words],
            env={**os.environ, **self.settings, "PYTHONPATH": path},
        )
        self.wait_for(200)

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.page is not None:
            self.page.send_signal(number)
            self.page.wait(SURELY_S)

    def wait_for(self, status: int) -> None:
        ends = time.monotonic() + SURELY_S
        while True:
            assert self.page is None or self.page.poll() is None
            try:
                if self.asked("/gputopo/")[0] == status:
                    return
            except OSError:
                pass
            assert time.monotonic() < ends
            time.sleep(0.05)

    def asked(self, target: str, user: str = OPERATOR) -> tuple[int, bytes]:
        """Status and body of what a user with a password asks."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SURELY_S)
        try:
            client.request("GET", target, headers={"Authorization": basic(user)} if user else {})
            reply = client.getresponse()
            return reply.status, reply.read()
        finally:
            client.close()

    def raw(self, target: str, *lines: str, user: str = USER, body: bytes = b"") -> bytes:
        """All that is answered to these very lines, which no library tidied up."""
        head = [f"GET {target} HTTP/1.1", "Host: gpus.example", *lines]
        head += [f"Authorization: {basic(user)}"] if user else []
        head += [] if body else ["Connection: close"]
        with socket.create_connection(("127.0.0.1", self.port), timeout=SURELY_S) as client:
            said = "\r\n".join([*head, "", ""]).encode("latin-1")
            # Who says too much is answered before the end of it.
            with suppress(ConnectionError):
                client.sendall(said + body + LAST if body else said)
            return taken(client)

    def direct(self, *lines: str) -> bytes:
        """What the page itself answers, past the proxy."""
        kind = socket.AF_UNIX if isinstance(self.own, str) else socket.AF_INET
        with socket.socket(kind) as client:
            client.settimeout(SURELY_S)
            client.connect(self.own)
            head = ["GET / HTTP/1.1", "Host: localhost", "Connection: close", *lines, "", ""]
            client.sendall("\r\n".join(head).encode())
            return taken(client)


def taken(client: socket.socket) -> bytes:
    """What comes until the other end closes."""
    said = b""
    with suppress(ConnectionError):
        while piece := client.recv(1 << 16):
            said += piece
    return said


def basic(user: str, password: str | None = None) -> str:
    text = f"{user}:{PASSWORDS[user] if password is None else password}"
    return f"Basic {base64.b64encode(text.encode()).decode()}"


def users_file(folder: Path) -> Path:
    """The form of passwords that both proxies read."""
    path = folder / "users"
    hashes = {name: hashlib.sha1(word.encode()).digest() for name, word in PASSWORDS.items()}
    lines = [f"{name}:{{SHA}}{base64.b64encode(one).decode()}" for name, one in hashes.items()]
    path.write_text("\n".join([*lines, ""]))
    return path


@contextmanager
def running(*words: object) -> Iterator[None]:
    """A proxy until the block ends."""
    process = subprocess.Popen([*map(str, words)], env={**os.environ, "PATH": PATH})
    try:
        yield
    finally:
        process.terminate()
        process.wait(SURELY_S)


@contextmanager
def public_folder() -> Iterator[Path]:
    """A folder that the proxies' own users may enter, which pytest's is not."""
    folder = Path(tempfile.mkdtemp(prefix="gputopo-proxy-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def need(program: str, package: str) -> None:
    if shutil.which(program, path=PATH) is None:
        pytest.skip(f"{program} is not installed (Debian: {package})")


def nginx(folder: Path, port: int, location: str) -> list[str]:
    """The command line that runs nginx with this in its server."""
    # Started by another user it runs as that one.
    user = "user www-data;" if os.getuid() == 0 else ""
    paths = "".join(
        f"{name}_temp_path {folder}/{name};"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    conf = folder / "nginx.conf"
    conf.write_text(
        f"{user} daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log; events {{}}"
        f" http {{ access_log off; {paths}"
        f" server {{ listen 127.0.0.1:{port};\n{location}\n}} }}\n"
    )
    return ["nginx", "-p", str(folder), "-e", f"{folder}/nginx.log", "-c", str(conf)]


def group() -> str:
    """The group that nginx runs in: Debian's, or that of whoever runs this test."""
    return "www-data" if os.getuid() == 0 else grp.getgrgid(os.getgid()).gr_name


def up(behind: Behind) -> Iterator[Behind]:
    try:
        behind.start()
        yield behind
    finally:
        behind.stop()


def other_address() -> str:
    """An address of this host that is not loopback: from there a proxy's header is believed."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this host has no address but 127.0.0.1")
        return str(probe.getsockname()[0])


def apache_location(folder: Path, names: dict[str, str]) -> str:
    """The page's file, with passwords in the place of mod_auth_openidc."""
    passwords = f'AuthType Basic\nAuthName GPUs\nAuthUserFile "{users_file(folder)}"\n'
    return filled(
        block("Open OnDemand", "apache"),
        {
            "AuthType openid-connect\n": passwords,
            "    OIDCPassClaimsAs none\n": "",
            '"SECRET"': f'"{SECRET}"',
            # The line that the page has for users who log in with more than their name.
            "    RequestHeader set X-Gputopo-Secret": f"    {cutting()}\n"
            "    RequestHeader set X-Gputopo-Secret",
            **names,
        },
    )


def cutting() -> str:
    [line] = re.findall(r"`(RequestHeader edit [^`]*)`", section("Open OnDemand"))
    return str(line)


def portal() -> dict[str, list[str]]:
    """ood_portal.yml, as the page has it."""
    found = yaml.safe_load(block("Open OnDemand", "yaml", "custom_vhost_directives"))
    assert isinstance(found, dict)
    return found


def apache(folder: Path, port: int, inside: str, *more: str) -> str:
    """A configuration whose one virtual host has this inside, as Open OnDemand's."""
    modules = ["mpm_event", "authn_core", "authn_file", "authz_core", "authz_user", "auth_basic",
               "headers", "proxy", "proxy_http", *more]  # fmt: skip
    lines = [f"LoadModule {name}_module {APACHE_MODULES}/mod_{name}.so" for name in modules]
    lines += ["User www-data", "Group www-data"] if os.getuid() == 0 else []
    lines += [
        f'DefaultRuntimeDir "{folder}"',
        f'PidFile "{folder}/apache.pid"',
        f'ErrorLog "{folder}/apache.log"',
        "ServerName gpus.example",
        f"Listen 127.0.0.1:{port}",
        f"<VirtualHost *:{port}>",
        inside,
        "</VirtualHost>",
    ]
    return "\n".join([*lines, ""])


def connected(port: int) -> socket.socket:
    ends = time.monotonic() + SURELY_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            assert time.monotonic() < ends
            time.sleep(0.05)
