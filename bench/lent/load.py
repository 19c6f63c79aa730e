"""`python -m bench.lent.load serve|call|flow|flood HOST PORT ...`: a server, clients that time it.

Calls are 64 bytes each way, one after the other. A flow goes one way until its end; the server
answers with the processor time that it took. Both are the same whatever lies between. A flood opens
connections as another user, as fast as one process can, until it is killed.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
import time
from collections import deque
from itertools import count

CALL_BYTES = 64
PART = bytes(1 << 20)
#: The connections that one process of a flood holds; the next one takes the place of the oldest.
HELD = 500
_SECONDS = struct.Struct("=d")


def serve(host: str, port: int) -> None:
    """A process for each connection, as most servers with a GPU have it."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((host, port))
    server.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        sock, _ = server.accept()
        if not os.fork():
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _answer(sock)
            os._exit(0)
        sock.close()


def _answer(sock: socket.socket) -> None:
    room = memoryview(bytearray(len(PART)))
    if sock.recv(1) == b"c":
        while count := sock.recv_into(room, CALL_BYTES):
            sock.sendall(room[:count])
        return
    began = time.process_time()
    while sock.recv_into(room):
        pass
    sock.sendall(_SECONDS.pack(time.process_time() - began))


def connected(host: str, port: int, word: bytes) -> socket.socket:
    """A connection that the server knows what to do with."""
    sock = socket.create_connection((host, port), 30)
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(word)
    return sock


def call(host: str, port: int, count: int) -> float:
    """The median of a call, in microseconds."""
    sock, room, took = connected(host, port, b"c"), memoryview(bytearray(CALL_BYTES)), []
    words = bytes(CALL_BYTES)
    for _ in range(count):
        began = time.perf_counter()
        sock.sendall(words)
        left = CALL_BYTES
        while left:
            left -= sock.recv_into(room, left)
        took.append(time.perf_counter() - began)
    return 1e6 * sorted(took)[count // 2]


def flow(host: str, port: int, streams: int, mib: int) -> tuple[float, float]:
    """GiB/s of `mib` MiB over so many connections at once; the processor time of both ends in s."""
    socks = [connected(host, port, b"f") for _ in range(streams)]
    told, tells = os.pipe()
    began = time.perf_counter()
    for sock in socks:
        if not os.fork():
            os.write(tells, _SECONDS.pack(_send(sock, mib // streams)))
            os._exit(0)
    busy = 0.0
    for _ in socks:
        busy += _SECONDS.unpack(os.read(told, _SECONDS.size))[0]
        os.wait()
    return mib / 1024 / (time.perf_counter() - began), busy


def _send(sock: socket.socket, mib: int) -> float:
    began = time.process_time()
    for _ in range(mib):
        sock.sendall(PART)
    sock.shutdown(socket.SHUT_WR)
    theirs = _SECONDS.unpack(sock.recv(_SECONDS.size, socket.MSG_WAITALL))[0]
    return time.process_time() - began + float(theirs)


def flood(host: str, port: int, uid: int) -> None:
    """Connect again and again as this user, which only root can become. Says when it has begun."""
    os.setuid(uid)
    held: deque[socket.socket] = deque()
    for number in count():
        if number == HELD:
            print("floods", flush=True)
        sock = socket.socket()
        sock.setblocking(False)
        # Every error is one of a flood's own: no port is free, nobody listens any more.
        sock.connect_ex((host, port))
        held.append(sock)
        if len(held) > HELD:
            held.popleft().close()


if __name__ == "__main__":
    word, where, number, *rest = sys.argv[1:]
    if word == "serve":
        serve(where, int(number))
    elif word == "flood":
        flood(where, int(number), int(rest[0]))
    elif word == "call":
        print(call(where, int(number), int(rest[0])))
    else:
        print(*flow(where, int(number), int(rest[0]), int(rest[1])))
