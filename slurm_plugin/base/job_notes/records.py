"""Records of jobs in AdminComment: `[gpu-slots: STATE key=value ...]`, `[gpu-loan: STATE ...]`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, NamedTuple
from urllib.parse import unquote

from slurm_plugin.base.job_notes.brackets import (
    LOAN,
    MAX_BYTES,
    REMEMBERED,
    SLOTS,
    bracket,
    inside,
    with_inside,
)
from slurm_plugin.base.job_notes.loan import Loan

if TYPE_CHECKING:
    from typing import Self

GATED, PLACED = "gated", "placed"
MAY, MEETS, STARTS = "may", "meets", "starts"
#: The keys of the four GPU requests in a record and on the wire, in the order of GpuRequests.
REQUESTS = ("tpn", "tpj", "tpt", "tps")

#: Values that are counts, seconds or epochs.
_NUMBERS = frozenset(
    (
        *("at", "begin", "cpg", "cpt", "mpg", "prio", "retry", "since", "spn", "tries"),
        *("loan_at", "loan_held", "loan_next", "loan_taken", "loan_tries"),
    )
)
#: Values that belong to one loan alone.
_OF_LOAN = ("loan", "loan_why", "loan_at")
#: What a job in the select mode asked for beside its GPUs.
_ASKED = ("req", "cpg", "cpt", "mpg")
_NUMBER = re.compile(r"\d{1,12}")
_UNSAFE = re.compile(rb"[^A-Za-z0-9_.:/,=()&*+\-]")


class GpuRequests(NamedTuple):
    """A job's GPU requests under Slurm's names, '' for each that the job does not make."""

    tres_per_node: str
    tres_per_job: str
    tres_per_task: str
    tres_per_socket: str

    @property
    def is_22_05(self) -> bool:
        """Was the job submitted to Slurm 22.05, which writes `gres:gpu:2`?

        There an update adds the GRES types that it names to those that the job asks for, and takes
        none away.
        """
        return any(text.startswith("gres:") for text in self)


@dataclass(frozen=True, slots=True)
class _Number:
    """An attribute of a record: the number of one key, 0 without."""

    key: str

    def __get__(self, record: JobRecord, _kind: object) -> int:
        return int(record.get(self.key) or 0)


@dataclass(frozen=True, slots=True)
class _Text:
    """An attribute of a record: the text of one key, '' without."""

    key: str

    def __get__(self, record: JobRecord, _kind: object) -> str:
        return record.get(self.key)


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What both kinds of record have: a state, values, and maybe a loan.

    `values` are plain texts by key, in the order in which they are written. A key that this
    version does not know stays.
    """

    state: str
    values: Mapping[str, str] = field(default_factory=dict)

    KIND: ClassVar[str]
    STATES: ClassVar[tuple[str, ...]]

    @classmethod
    def read_from(cls, comment: str) -> Self | None:
        """The record in a comment; None without one, or with one that we did not write."""
        return cls.parsed(inside(comment, cls.KIND) or "")

    @classmethod
    @lru_cache(maxsize=REMEMBERED)
    def parsed(cls, text: str) -> Self | None:
        """The record that stands in a bracket; None where we did not write it."""
        words = text.split()
        if not words or words[0] not in cls.STATES:
            return None
        values = {}
        for word in words[1:]:
            key, equals, value = word.partition("=")
            if not equals or (key in _NUMBERS and not _NUMBER.fullmatch(value)):
                return None
            values[key] = unquote(value)
        return cls(words[0], values)

    def inside(self) -> str:
        """What stands in its bracket. Raises ValueError where that gets longer than MAX_BYTES."""
        words = [self.state]
        words += [f"{key}={_quote(value)}" for key, value in self.values.items() if value]
        text = " ".join(words)
        size = len(bracket(self.KIND, text))
        if size > MAX_BYTES:
            raise ValueError(f"the job's own request takes {size} bytes, over {MAX_BYTES}")
        return text

    def text(self) -> str:
        """The whole bracket. Raises ValueError as `inside` does."""
        return bracket(self.KIND, self.inside())

    def written_into(self, comment: str) -> str:
        """The comment with this record in place of the one it has. Raises as `inside` does."""
        return with_inside(comment, self.KIND, self.inside())

    def get(self, key: str) -> str:
        """The value of `key`, '' without."""
        return self.values.get(key, "")

    def changed(self, state: str = "", **values: str | int) -> Self:
        """The record in this state ('': as before), with these values in place of its own."""
        texts = {key: str(value) for key, value in values.items()}
        return replace(self, state=state or self.state, values={**self.values, **texts})

    def without(self, *keys: str) -> Self:
        """The record without these values."""
        return replace(self, values={k: text for k, text in self.values.items() if k not in keys})

    #: When (epoch) the job was last given its GPUs; 0 for never.
    at = _Number("at")
    #: Why these donors were chosen, in words.
    loan_reason = _Text("loan_why")
    #: When (epoch) the loan was made.
    loan_made_at = _Number("loan_at")
    #: How many loans of the job came to nothing.
    loan_tries = _Number("loan_tries")
    #: Before this epoch no other loan is tried for the job; 0: it may be tried now.
    next_loan_at = _Number("loan_next")
    #: Since when (epoch) the network alone keeps the job from a loan; 0 where it does not.
    held_by_network_since = _Number("loan_held")
    #: When (epoch) its lent GPUs were taken back; 0 for never.
    taken_back_at = _Number("loan_taken")
    #: The nodes that the user named, '' for none.
    req_nodes = _Text("req")
    #: What the user asked for, 0 for nothing.
    cpus_per_gpu = _Number("cpg")
    cpus_per_task = _Number("cpt")
    #: The same, kept only while the job has a loan.
    memory_per_gpu_mb = _Number("mpg")

    @property
    def asked(self) -> str:
        """The GPUs that the user asked for, per node, for the job or per task; '' for none."""
        per_node, per_job, per_task, _ = self.requests
        return per_node or per_job or per_task

    @property
    def requests(self) -> GpuRequests:
        """The GPUs that the user asked for."""
        return GpuRequests(*map(self.get, REQUESTS))

    @property
    def may_borrow(self) -> bool:
        """May the job be lent GPUs of other nodes?"""
        return bool(self.get("remote"))

    @property
    def names_loan(self) -> bool:
        """Does the record name a loan, be it one that cannot be read?"""
        return bool(self.get("loan"))

    @property
    def loan(self) -> Loan | None:
        """The loan; None for none, or one that cannot be read."""
        try:
            return Loan.parsed(self.get("loan"))
        except ValueError:
            return None

    def with_loan(self, loan: Loan, made_at: int, reason: str) -> Self:
        """The record with a loan that was just made."""
        return self.changed(loan=loan.text(), loan_at=made_at, loan_why=reason)

    def without_loan(self) -> Self:
        """The record without its loan; how often one was tried stays."""
        return self.without(*_OF_LOAN)

    def held_by_network(self, now: int) -> Self:
        """The record from when on the network alone keeps the job from a loan."""
        return self.changed(loan_held=self.get("loan_held") or now)

    def paused(self, next_loan_at: int) -> Self:
        """The record after one more loan that came to nothing."""
        return self.changed(loan_tries=self.loan_tries + 1, loan_next=next_loan_at)


class LoanRecord(JobRecord):
    """A job that may borrow where GPUs are chosen when it starts.

    `may`: it may borrow. `meets`: a begin time keeps it away from all GPUs while its donors start.
    `starts`: it asks for its local GPUs alone, and TaskProlog lets it run with every donor or not.
    """

    __slots__ = ()
    KIND = LOAN
    STATES = (MAY, MEETS, STARTS)

    #: The job's priority before the loan.
    priority = _Number("prio")

    def meets(self, requests: GpuRequests, priority: int, **asked: str | int) -> LoanRecord:
        """The record of a job whose donors start; it keeps what the user asked for.

        `asked`: values of the keys `req`, `cpg`, `cpt` and `mpg`.
        """
        asked = {key: value for key, value in asked.items() if value}
        kept = dict(zip(REQUESTS, requests, strict=True))
        return self.changed(MEETS, **kept, prio=priority, **asked)

    def starts(self, loan: Loan, now: int) -> LoanRecord:
        """The record of a job that is let start, all donors being ready."""
        return self.changed(STARTS, loan=loan.text(), at=now)

    def over(self) -> LoanRecord:
        """The record of a job that has no loan any more, but may be lent to again."""
        return self.without(*_OF_LOAN, *REQUESTS, *_ASKED, "prio", "at").changed(MAY)


class GateRecord(JobRecord):
    """A job of the slots mode: `gated` behind a begin time, or `placed` on slots.

    It keeps what the user asked for, so that the job can be given that back.
    """

    __slots__ = ()
    KIND = SLOTS
    STATES = (GATED, PLACED)

    #: Finds the promise that was made at the job's submit.
    token = _Text("token")
    #: The job's own begin time (epoch): the user's, or Slurm's for one that it put back; 0 without.
    begin = _Number("begin")
    #: How many sockets of each node the user asked for, 0 for any.
    sockets_per_node = _Number("spn")
    #: How many releases of the job came to nothing, one after the other.
    tries = _Number("tries")
    #: Before this epoch no other release is tried; 0: it may be tried now.
    retry_at = _Number("retry")
    #: Since when (epoch) a policy lets the job wait; 0 where none does.
    since = _Number("since")

    @property
    def nodes(self) -> tuple[int, int]:
        """The fewest and the most nodes that the user asked for; 0 for no upper bound."""
        least, _, most = self.get("nodes").partition("-")
        return int(least or 1), int(most or 0)

    @property
    def is_given_to_job(self) -> bool:
        """Do the slots stand in the request for the whole job, not in that for each node?"""
        return self.get("by") == "job"

    @property
    def is_changed(self) -> bool:
        """Did root change the request since? The bridge says so (lua_bridge/gputopo/guard.lua)."""
        return self.get("changed") == "1"

    @property
    def interactive(self) -> bool:
        """Is it of srun or salloc?"""
        return self.get("interactive") == "1"

    @property
    def binds(self) -> bool:
        """Did the user ask for CPUs near the GPUs alone (--gres-flags=enforce-binding)?"""
        return self.get("bind") == "1"

    def placed(self, now: int) -> GateRecord:
        """The record of a job that is given its slots; no first component is pinned any more."""
        return self.without("pin").changed(PLACED, at=now)

    def reshaped(self, per_node: str, nodes: int) -> GateRecord:
        """The record of a job that got another shape."""
        return self.changed(tpn=per_node, nodes=f"{nodes}-{nodes}")

    def gated_again(self, retry_at: int) -> GateRecord:
        """The record of a job whose slots Slurm did not start it on."""
        again = self.without("at", "pin", *_OF_LOAN)
        return again.changed(GATED, tries=self.tries + 1, retry=retry_at)


def without_gate(comment: str) -> str:
    """The comment without the record of the slots mode."""
    return with_inside(comment, SLOTS, None)


def is_ahead(epoch: int, now: int, longest_s: int) -> bool:
    """Is this time still to come?

    One farther away than it is ever set was written before the clock was set back.
    """
    return 0 < epoch - now <= longest_s


def _quote(text: str) -> str:
    return _UNSAFE.sub(lambda m: b"%%%02X" % m[0][0], text.encode()).decode()
