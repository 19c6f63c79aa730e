"""What the kernel says of ports and processes of this host."""

import os
import socket
from pathlib import Path


def free_port() -> int:
    """A port of 127.0.0.1 at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def memory_mb(pid: int) -> float:
    """The most memory that a process ever had, MiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) / 1024


def open_files() -> int:
    """How many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))
