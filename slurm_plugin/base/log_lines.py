"""What stands in the decision log: a type for each kind of line, by which all write and read it.

`decision` says the kind. GPUs are Slurm's indices. A key that a line does not have is UNSET; one
that was added later has a default, so that logs of earlier releases stay readable. Who reads goes
by `Reader`: whatever else stands in the file (half a line of a crash, another program's) is
skipped and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from slurm_plugin.base.rows_file import NO_JSON

T = TypeVar("T")

#: Bounds that no line of ours comes near: views, times and JSON can hold what lies within them.
Id = Annotated[int, Meta(ge=0, lt=1 << 32)]
Uid = Annotated[int, Meta(ge=-1, lt=1 << 32)]
Gpu = Annotated[int, Meta(ge=0, lt=1 << 16)]
Whole = Annotated[int, Meta(gt=-(1 << 53), lt=1 << 53)]
#: Seconds since 1970, to the year 9999.
Epoch = Annotated[int, Meta(ge=0, lt=253_402_300_800)]
#: null is what JSON has for a figure that is infinite, or no number.
Figure = float | None
#: By node; chosen ones in rank order.
Gpus = dict[str, tuple[Gpu, ...]]


class Line(Struct, kw_only=True, tag_field="decision"):
    """What every line of the decision log has."""

    #: ISO 8601.
    time: str = ""
    took_ms: float = 0.0
    job: Id = 0
    array: Id = 0

    @property
    def decision(self) -> str:
        """The kind, as the line says it."""
        return str(self.__struct_config__.tag)

    @property
    def said(self) -> str:
        """Why, in the words that say most."""
        keys = ("reason", "note", "why")
        return next((text for key in keys if (text := getattr(self, key, UNSET))), "")

    @property
    def places(self) -> Gpus:
        """The GPUs that the line is about."""
        return {}


class OfUser(Line, kw_only=True):
    """A line that says whose job it is; -1 where one of an earlier release does not."""

    uid: Uid = -1
    account: str = ""
    partition: str = ""


class LoggedSpine(Struct, kw_only=True):
    """Bytes over the spine per byte that is reduced (`policies.scoring.rails.Spine`)."""

    ring: Figure | UnsetType = UNSET
    tree: Figure | UnsetType = UNSET
    ring_total: Figure | UnsetType = UNSET
    tree_total: Figure | UnsetType = UNSET
    sharp: Figure | UnsetType = UNSET
    sharp_total: Figure | UnsetType = UNSET


class LoggedSet(Struct, kw_only=True):
    """A set of GPUs, and what it is worth."""

    gpus: Gpus = {}
    score: Figure | UnsetType = UNSET
    #: Of a policy of several terms.
    terms: dict[str, Figure] | UnsetType = UNSET
    effbw_gbps: Figure | UnsetType = UNSET
    agg_gbps: Figure | UnsetType = UNSET
    preserved_gbps: Figure | UnsetType = UNSET
    pcie_hops: Whole | UnsetType = UNSET
    rails: dict[str, tuple[Whole, ...]] | UnsetType = UNSET
    spine: LoggedSpine | UnsetType = UNSET
    rails_declared: bool | UnsetType = UNSET
    #: The share of the best there is on an empty node, or the mean of its terms.
    utility: Figure | UnsetType = UNSET
    # Of slices and shares: the GPUs that they are of, what shares are called, GPUs that are begun.
    of_gpus: dict[str, tuple[Whole, ...]] | UnsetType = UNSET
    shares: str | UnsetType = UNSET
    begun: Whole | UnsetType = UNSET
    untouched: Whole | UnsetType = UNSET


class Placing(OfUser, kw_only=True):
    """An answer about a job that was to be placed (`decide.record` says what is in it)."""

    hint: str = ""
    mode: str = ""
    applied: bool = True
    why: str = ""
    note: str = ""
    postponed: Whole = 0
    waited_s: Whole = 0
    candidate_nodes: Whole = 0
    wait_s: Whole | UnsetType = UNSET
    #: GPUs within the nodes that Slurm chose, should it insist on them.
    alt: Gpus | UnsetType = UNSET
    policy: str | UnsetType = UNSET
    pattern: str | UnsetType = UNSET
    gpus_per_node: tuple[Whole, ...] | UnsetType = UNSET
    shares: str | UnsetType = UNSET
    policy_ms: Figure | UnsetType = UNSET
    nodes: str | UnsetType = UNSET
    excluded_nodes: dict[str, str] | UnsetType = UNSET
    slurm: LoggedSet | UnsetType = UNSET
    marked: dict[str, tuple[str, ...]] | UnsetType = UNSET
    chosen: LoggedSet | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    candidates: tuple[LoggedSet, ...] | UnsetType = UNSET

    @property
    def choice(self) -> LoggedSet:
        """What was chosen, else what Slurm would have taken."""
        return next((one for one in (self.chosen, self.slurm) if one and one.gpus), LoggedSet())

    @property
    def places(self) -> Gpus:
        """The GPUs of `choice`, by node."""
        return self.choice.gpus


class UseLine(Placing, tag="use", kw_only=True):
    """The job gets these GPUs."""


class WaitLine(Placing, tag="wait", kw_only=True):
    """Not now; `chosen` is what it would have got."""


class PassLine(Placing, tag="pass", kw_only=True):
    """It is Slurm's own choice."""


class StartedLine(Line, tag="started", kw_only=True):
    """Where a job really started."""

    gpus: Gpus = {}

    @property
    def places(self) -> Gpus:
        """Its GPUs, in Slurm's order."""
        return self.gpus


class ShapeChoice(Struct, kw_only=True):
    """A shape that a job could have."""

    shape: str
    latency_s: float
    cost: float
    ratio: float
    in_time: bool


class ShapeLine(OfUser, tag="shape", kw_only=True):
    """The shape that GENIE chose."""

    shape: str
    why: str = ""
    note: str = ""
    service: str
    deadline: Epoch
    allowance_s: float
    starts: bool = False
    shapes: tuple[ShapeChoice, ...] = ()
    shapes_left_out: Whole = 0
    hint: str = ""
    policy: str = ""


class OrderLine(OfUser, tag="order", kw_only=True):
    """A job that was let pass, or was passed."""

    why: str = ""


class OfLoan(OfUser, kw_only=True):
    """What became of a wish to borrow."""

    hint: str = ""
    asked: str = ""
    why: str = ""


class LentBy(Struct, kw_only=True):
    """What one donor, a job itself, lends."""

    node: str
    gpus: tuple[Gpu, ...]
    job: Id


class LentLine(OfLoan, tag="lent", kw_only=True):
    """A loan was made: the job's own GPUs on its host, and what it borrows."""

    host: str
    gpus: tuple[Gpu, ...]
    donors: tuple[LentBy, ...]

    @property
    def places(self) -> Gpus:
        """Its own GPUs first, then the borrowed ones."""
        return {self.host: self.gpus, **{one.node: one.gpus for one in self.donors}}


class NotLentLine(OfLoan, tag="not lent", kw_only=True):
    """The job could borrow, and had better wait."""


class LoanOverLine(OfLoan, tag="loan over", kw_only=True):
    """A loan came to nothing."""

    pause_s: Whole = 0


class GivenBackLine(OfUser, tag="given back", kw_only=True):
    """What a donor lent until it ended, by `gpus`, a count. It decides nothing."""

    donor: Id
    node: str
    gpus: Whole
    seconds: Whole
    bytes_in: Whole = 0
    bytes_out: Whole = 0
    packets_in: Whole = 0


#: Every kind there is.
AnyLine = (
    UseLine
    | WaitLine
    | PassLine
    | StartedLine
    | ShapeLine
    | OrderLine
    | LentLine
    | NotLentLine
    | LoanOverLine
    | GivenBackLine
)

_DECODER = msgspec.json.Decoder(AnyLine)


class LineReader:
    """Makes records of lines; what cannot be read is skipped, and counted in `unread`."""

    def __init__(self) -> None:
        self.unread = 0

    def records(self, lines: Iterable[bytes]) -> Iterator[Line]:
        """The records of whole lines, in their order; empty lines count as nothing."""
        for line in lines:
            if not line.strip():
                continue
            try:
                record: Line = _DECODER.decode(line)
            except NO_JSON:
                self.unread += 1
                continue
            yield record

    @property
    def in_words(self) -> str:
        """How many lines were skipped; '' for none."""
        some = "line of it cannot be" if self.unread == 1 else "lines of it cannot be"
        return f"{self.unread} {some} read, and left out" if self.unread else ""


def plain(record: Line) -> dict[str, Any]:
    """The record's keys and values as JSON has them."""
    values: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(record))
    return values


def of_plain(values: Mapping[str, Any]) -> Line:
    """The record of keys and values. Raises msgspec.ValidationError."""
    record: Line = msgspec.convert(values, AnyLine)
    return record


def known(value: T | UnsetType | None) -> T | None:
    """The value, None where the line has none."""
    return None if isinstance(value, UnsetType) else value
