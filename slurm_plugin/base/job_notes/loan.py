"""The GPUs that a job borrows, in one word of its record.

`dgx1/3,dgx2/6/4712/50001`: the job's own node and the mask of its GPUs there, then each donor's
node, the mask that it lends, its job's id, and the port at which it listens once it is ready.
Masks are hexadecimal, in Slurm's GPU indices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class LoanDonor:
    """One donor: job `job_id` holds `mask` of `node` for the borrower."""

    node: str
    mask: int
    job_id: int
    #: Where it listens; 0 until it is ready.
    port: int = 0

    @property
    def gpus(self) -> int:
        """How many GPUs it lends."""
        return self.mask.bit_count()


@dataclass(frozen=True, slots=True)
class Loan:
    """`mask` of the borrower's own node `host`, and what other nodes lend."""

    host: str
    mask: int
    donors: tuple[LoanDonor, ...]

    @classmethod
    def parsed(cls, text: str) -> Loan:
        """The loan behind `text()`. Raises ValueError for one without donors, or broken."""
        (host, mask), *donors = (part.split("/") for part in text.split(","))
        if not donors:
            raise ValueError(f"{text!r} names no donor")
        return cls(host, int(mask, 16), tuple(map(_donor, donors)))

    def text(self) -> str:
        """The word in the record."""
        parts = [f"{self.host}/{self.mask:x}"]
        for donor in self.donors:
            port = f"/{donor.port}" if donor.port else ""
            parts.append(f"{donor.node}/{donor.mask:x}/{donor.job_id}{port}")
        return ",".join(parts)

    def with_ports(self, ports: Mapping[int, int]) -> Loan:
        """The loan with each donor's port by its job's id."""
        donors = tuple(replace(donor, port=ports[donor.job_id]) for donor in self.donors)
        return replace(self, donors=donors)

    def note(self, reason: str = "") -> str:
        """For people: which GPUs of which nodes, and why these."""
        lent = [f"{one.node}:{_shown(one.mask)} (job {one.job_id})" for one in self.donors]
        text = f"{self.host}:{_shown(self.mask)} and, over the network, {', '.join(lent)}"
        return f"{text}, by {reason}" if reason else text


def _donor(words: list[str]) -> LoanDonor:
    try:
        node, mask, job_id, *port = words
        return LoanDonor(node, int(mask, 16), int(job_id), int(*port))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{'/'.join(words)!r} is no donor: {error}") from error


def _shown(mask: int) -> str:
    return ",".join(str(i) for i in range(mask.bit_length()) if mask >> i & 1)
