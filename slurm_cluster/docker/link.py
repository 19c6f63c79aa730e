"""Puts the network link eth0 of this host up or down: link.py up|down. Needs CAP_NET_ADMIN."""

import fcntl
import socket
import struct
import sys

SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
REQUEST = "16sH14x"

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    asked = struct.pack(REQUEST, b"eth0", 0)
    _, flags = struct.unpack(REQUEST, fcntl.ioctl(control, SIOCGIFFLAGS, asked))
    flags = flags | IFF_UP if sys.argv[1] == "up" else flags & ~IFF_UP
    fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack(REQUEST, b"eth0", flags))
