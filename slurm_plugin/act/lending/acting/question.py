"""One line each way between the engine and the process that acts for users.

donor 4711 1000 dgx2 2  ->  ok 4712     job 4712 lends two GPUs of dgx2 to job 4711 of uid 1000
ready                   ->  ok          a donor could be submitted
                        ->  error TEXT
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.errors import SlurmError

#: Longest line of either side.
MAX_BYTES = 512
READY = b"ready"
#: One node by a name that slurm.conf allows: neither a host list nor a file with one.
_DONOR = re.compile(
    rb"donor ([1-9][0-9]{0,9}) ([0-9]{1,10}) ([A-Za-z0-9][A-Za-z0-9_.-]{0,254}) ([1-9][0-9]{0,2})"
)


@dataclass(frozen=True, slots=True)
class Question:
    """A donor with `gpus` GPUs of `node` for the job `borrower` of the user `uid`."""

    borrower: int
    uid: int
    node: str
    gpus: int

    def line(self) -> bytes:
        """The question's line, without its line feed."""
        return f"donor {self.borrower} {self.uid} {self.node} {self.gpus}".encode()


def read(line: bytes) -> Question | None:
    """What a line asks for; None for READY. SlurmError for anything else."""
    if line == READY:
        return None
    match = _DONOR.fullmatch(line)
    if match is None:
        raise SlurmError(f"{line[:60]!r}: expected ready, or donor JOBID UID NODE GPUS")
    return Question(int(match[1]), int(match[2]), match[3].decode(), int(match[4]))


def line_of(peer: socket.socket) -> bytes:
    """The line that a peer sends in one piece, without its line feed.

    SlurmError for anything else, OSError where it takes longer than the socket's timeout.
    """
    line = peer.recv(MAX_BYTES + 1)
    if not line:
        raise ConnectionResetError("hung up")
    if len(line) > MAX_BYTES or not line.endswith(b"\n"):
        raise SlurmError(f"expected one line of at most {MAX_BYTES} bytes in one piece")
    return line[:-1]


@dataclass(frozen=True, slots=True)
class Submitter:
    """The engine's side: asks the process at `path`, and waits `timeout_s` at most."""

    path: Path
    timeout_s: float

    def donor(self, asked: Question) -> int:
        """Submit a donor and return its job id. Raises SlurmError.

        The id is what the user's own sbatch printed: whose job it is must be looked up.
        """
        answer = self._ask(asked.line())
        try:
            return int(answer)
        except ValueError as error:
            raise SlurmError(
                f"{self.path}: answered {answer[:60]!r}, which is no job id"
            ) from error

    def obstacle(self) -> str:
        """Why no donor can be submitted now; '' where one can."""
        try:
            self._ask(READY)
        except SlurmError as error:
            return str(error)
        return ""

    def _ask(self, line: bytes) -> str:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
                peer.settimeout(self.timeout_s)
                peer.connect(str(self.path))
                peer.sendall(line + b"\n")
                answer = line_of(peer).decode(errors="replace")
        except OSError as error:
            why = error.strerror or error
            raise SlurmError(
                f"donors cannot be submitted: {self.path}: {why}; see systemctl status"
                " gputopo-donors"
            ) from error
        verb, _, rest = answer.partition(" ")
        if verb != "ok":
            raise SlurmError(rest or f"{self.path}: answered {answer[:60]!r}")
        return rest
