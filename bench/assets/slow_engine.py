"""An engine that passes every question after so many milliseconds: slow_engine.py SOCKET MS.

SOCKET.asked has the number of questions so far.
"""

import os
import socketserver
import sys
import time

SOCKET, WAIT_S = sys.argv[1], float(sys.argv[2]) / 1000


class Handler(socketserver.StreamRequestHandler):
    """One connection of the bridge's."""

    def handle(self):
        """Count and answer each line; a peer that gave up is no error."""
        for line in self.rfile:
            self.server.asked += 1
            os.pwrite(self.server.count, b"%d" % self.server.asked, 0)
            time.sleep(WAIT_S)
            number = line.split(b" id=", 1)[1].split()[0]
            try:
                self.wfile.write(b"pass id=%s\n" % number)
            except BrokenPipeError:
                return


class Server(socketserver.ThreadingUnixStreamServer):
    """A thread for each connection, and the file with the number of questions."""

    daemon_threads = True
    asked = 0
    count = os.open(f"{SOCKET}.asked", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)


if __name__ == "__main__":
    with Server(SOCKET, Handler) as server:
        os.chmod(SOCKET, 0o666)
        server.serve_forever()
