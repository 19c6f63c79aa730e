"""A donor's job: whom it lends to, and what it says of itself.

`[gpu-donor: of=4711]` in AdminComment is ours. Its Comment, which its user can write, has
`gpu-donor of=4711` from the submit on, and later its report, `gpu-donor ready of=4711 port=50001`
or `gpu-donor failed of=4711 WHY`. What passed through it follows the port:
`in=BYTES out=BYTES packets=N`, seen from the donor, and `idle=EPOCH` while connections are
open over which nothing has passed since.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from slurm_plugin.base.job_notes.brackets import DONOR, bracket, inside

#: The name of a donor's job, and the first word of its Comment.
NAME = "gpu-donor"
_OF = re.compile(r"of=(\d{1,10})")
_COMMENT = re.compile(
    rf"{NAME} (?:of=(\d{{1,10}})|ready of=(\d{{1,10}}) port=(\d{{1,5}})"
    r"(?: in=(\d{1,18}) out=(\d{1,18}) packets=(\d{1,18})(?: idle=(\d{1,12}))?)?"
    r"|failed of=(\d{1,10}) (.*))\Z",
    re.DOTALL,
)


def entry(borrower: int) -> str:
    """The AdminComment of a donor of this job."""
    return bracket(DONOR, f"of={borrower}")


def borrower_in(admin_comment: str) -> int:
    """The id of the job that this donor lends to; 0 for a job that is no donor."""
    match = _OF.fullmatch(inside(admin_comment, DONOR) or "")
    return int(match[1]) if match else 0


def submitted(borrower: int) -> str:
    """A donor's Comment at its submit."""
    return f"{NAME} of={borrower}"


@dataclass(frozen=True, slots=True)
class Passed:
    """What passed over a donor's connections."""

    #: Bytes to the donor, and from it.
    received: int = 0
    sent: int = 0
    #: Packets with data to the donor: no fewer than calls.
    packets: int = 0

    def __add__(self, other: Passed) -> Passed:
        received, sent = self.received + other.received, self.sent + other.sent
        return Passed(received, sent, self.packets + other.packets)


def ready(borrower: int, port: int, passed: Passed | None = None, idle_since: int = 0) -> str:
    """A donor's Comment once it can be used, and with what passed until now.

    `idle_since` (epoch): since when nothing passed over what is open; 0: something does.
    """
    text = f"{NAME} ready of={borrower} port={port}"
    if passed is None:
        return text
    text += f" in={passed.received} out={passed.sent} packets={passed.packets}"
    return f"{text} idle={idle_since}" if idle_since else text


def failed(borrower: int, why: str) -> str:
    """A donor's Comment when it cannot be used."""
    return f"{NAME} failed of={borrower} {why}"


@dataclass(frozen=True, slots=True)
class DonorReport:
    """What a donor's Comment says of itself."""

    borrower: int
    #: Where it is ready; 0 until then.
    port: int = 0
    #: Why it failed; None where it did not.
    failure: str | None = None
    passed: Passed = field(default_factory=Passed)
    #: Since when nothing passed over connections that are open (epoch); 0 where something does.
    idle_since: int = 0

    @classmethod
    def read_from(cls, comment: str) -> DonorReport | None:
        """The report in a job's Comment; None where there is none."""
        match = _COMMENT.match(comment)
        if match is None:
            return None
        of, ready_of, port, received, sent, packets, idle, failed_of, failure = match.groups()
        passed = Passed(int(received or 0), int(sent or 0), int(packets or 0))
        borrower = int(of or ready_of or failed_of)
        return cls(borrower, int(port or 0), failure, passed, int(idle or 0))
