"""A stand-in for the engine inside the controller: fake_engine.py SOCKET LOG [BEHAVIOUR].

Writes every submit line to LOG; other well-formed lines are answered pass. BEHAVIOUR:
pass, bracket (ok with an admin comment), refuse, silent, garbage, half, close, huge.
"""

import os
import re
import socketserver
import sys
import time

SOCKET, LOG, BEHAVIOUR = sys.argv[1], sys.argv[2], (sys.argv[3:] or ["pass"])[0]
ANSWERS = {
    "pass": b"pass id=%s\n",
    "bracket": b"ok id=%s set.admin_comment=[gpu-topo:%%20pattern=ring]"
    b" env.GPUTOPO_LIVE_TEST=from%%20the%%20engine\n",
    "refuse": b"refuse id=%s message=gpu-topo:%%20unknown%%20key%%20'patern',%%20allowed:%%20all\n",
    "garbage": b"\x00\xff]0;%s\x1b\n\n\n",
    "half": b"ok id=%s set.req_",
    "close": b"",
    "huge": b"ok id=%s set.features=" + b"x" * 10_000_000,
}


class Handler(socketserver.StreamRequestHandler):
    """One connection of the bridge."""

    def handle(self) -> None:
        """Log and answer each request line; notices get no answer."""
        for line in self.rfile:
            is_submit = line.startswith(b"submit ")
            if is_submit:
                with open(LOG, "ab") as log:
                    log.write(line)
            if BEHAVIOUR == "silent":
                time.sleep(3600)
            number = re.search(rb" id=(\d+)", line)
            if number is None:
                continue
            is_polite = BEHAVIOUR in ("pass", "bracket", "refuse")
            answer = ANSWERS["pass" if is_polite and not is_submit else BEHAVIOUR]
            self.wfile.write(answer % number[1] if b"%s" in answer else answer)
            if BEHAVIOUR == "close":
                return


class Server(socketserver.ThreadingUnixStreamServer):
    """A daemon thread per connection."""

    daemon_threads = True


if os.path.exists(SOCKET):
    os.unlink(SOCKET)
with Server(SOCKET, Handler) as server:
    os.chmod(SOCKET, 0o666)
    server.serve_forever()
