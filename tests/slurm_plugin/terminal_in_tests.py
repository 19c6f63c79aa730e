"""`gputopo` on a terminal of 80 columns and 24 lines, as a person has it."""

import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: The command as the package installs it, from this very checkout.
GPUTOPO = (sys.executable, "-c", "import sys; sys.argv[0] = 'gputopo'\n"
           "from slurm_plugin.cli import main; main()")  # fmt: skip


class Terminal:
    """One command on a terminal: `text` is all that it wrote; standard output may go elsewhere."""

    def __init__(self, *words: str, stdout: int | None = None, **environment: str) -> None:
        self.text = ""
        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        kept = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "CI")}
        self.process = subprocess.Popen(
            [*GPUTOPO, *words],
            stdin=theirs,
            stdout=theirs if stdout is None else stdout,
            stderr=theirs,
            start_new_session=True,
            env={**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm", **environment},
        )
        os.close(theirs)

    def read_until(self, words: str, within_s: float = 60) -> None:
        """Read until it wrote this; AssertionError with all that it wrote where it does not."""
        end = time.monotonic() + within_s
        while words not in self.text:
            assert self._read(end), f"no {words!r} in {self.text!r}"

    def type(self, keys: str) -> None:
        """Press these keys."""
        os.write(self._ours, keys.encode())

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def end(self, within_s: float = 60) -> int:
        """Wait for the command's end: its exit status."""
        end = time.monotonic() + within_s
        while self._read(end):
            pass
        os.close(self._ours)
        return self.process.wait(within_s)

    def _read(self, end: float) -> bool:
        """Some more; False once nobody writes any longer or the time is over."""
        ready, _, _ = select.select([self._ours], [], [], max(0, end - time.monotonic()))
        try:
            part = os.read(self._ours, 65536) if ready else b""
        except OSError:
            part = b""  # Linux ends a terminal so, once its last writer is gone.
        self.text += part.decode(errors="replace")
        return bool(part)
