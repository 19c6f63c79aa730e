"""systemd's notify protocol (sd_notify(3)) in a few lines: ready, reloading, watchdog."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping

logger = logging.getLogger(__name__)


class Notifier:
    """Tells systemd how the engine is; silent where no systemd started us."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        usec = environment.get("WATCHDOG_USEC", "")
        is_ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        #: Seconds within which systemd expects a sign of life; None without a watchdog.
        self.watchdog_s = (int(usec) / 1e6 or None) if usec.isdigit() and is_ours else None

    def ready(self, status: str) -> None:
        """Started (or reloaded), and what with."""
        self._send(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        """About to reload; `ready` ends it."""
        stamp_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send(f"RELOADING=1\nMONOTONIC_USEC={stamp_us}")

    def stopping(self) -> None:
        """Tell systemd that the engine is about to end."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """Tell systemd's watchdog that the engine is alive."""
        self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
                sock.sendto(text.encode(), self._address)
        except OSError as error:
            logger.warning("cannot notify systemd: %s", error)
