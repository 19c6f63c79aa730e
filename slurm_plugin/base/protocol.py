"""The messages of docs/protocol.md: one line each (`slurm_plugin.base.wire`).

`decode` turns a request line into a typed message, within bounds and consistent; the replies'
`encode` makes a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from slurm_plugin.base.node_lines import (
    MAX_NODE_GPUS,
    NodesPart,
    TableChanges,
    candidates,
    changes,
    check_shares,
    nodes_part,
)
from slurm_plugin.base.placement import PlacementQuestion
from slurm_plugin.base.wire import clean_note, encode, split, unquote
from slurm_plugin.errors import ProtocolError

MAX_REQUEST_BYTES = 1 << 20
MAX_REPLY_BYTES = 64 << 10
MAX_HINT_BYTES = 4096
MAX_NAME_BYTES = 1024
FORMS = ("node", "job", "task", "socket")
#: Seconds for which the bridge may use an answer to a submit again for the very same request.
KEEP_S = 1

_MASK = f"[0-9a-fA-F]{{1,{MAX_NODE_GPUS // 4}}}"
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,254}"
_NODE_MASK = re.compile(rf"({_NAME})/({_MASK})\Z")
_DECIMAL = re.compile(r"\d{1,18}\Z")


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """What a job asks for beside its GPUs, named as in docs/protocol.md; 0 or '' is unset."""

    #: What its GPUs are counted for: one of FORMS.
    form: str
    exclusive: bool = False
    #: --gres-flags=enforce-binding: only cores near its GPUs.
    enforce_binding: bool = False
    cpus: int = 0
    cpus_per_task: int = 0
    cpus_per_gpu: int = 0
    mem_node_mb: int = 0
    mem_cpu_mb: int = 0
    mem_gpu_mb: int = 0
    #: --constraint.
    features: str = ""
    #: Host lists of the nodes that it names, and of those that it excludes.
    req_nodes: str = ""
    exc_nodes: str = ""
    reservation: str = ""
    #: Its tasks are bound to sockets or cores by number (-B, --ntasks-per-socket, ...); or it takes
    #: so many threads of each core, which matters where a core has several.
    by_core: bool = False
    by_thread: bool = False
    #: --contiguous, --switches, --segment.
    together: bool = False

    @property
    def says_memory(self) -> bool:
        """Does it ask for memory?"""
        return bool(self.mem_node_mb or self.mem_cpu_mb or self.mem_gpu_mb)


@dataclass(frozen=True, slots=True)
class SlotsKeys(ResourceRequest):
    """What the slots mode adds to a submit."""

    batch: bool = True
    array: bool = False
    het: bool = False
    depends: bool = False
    held: bool = False
    overcommit: bool = False
    #: --exclusive=user or =mcs: its nodes are closed to others.
    closes: bool = False
    #: --prefer; --mem=0, all memory of its nodes; --immediate; --deadline, as its script says.
    prefers: bool = False
    mem_all: bool = False
    immediate: bool = False
    deadline: bool = False
    begin: int = 0
    time_s: int = 0
    tpn: str = ""
    tpj: str = ""
    tpt: str = ""
    tps: str = ""


@dataclass(frozen=True, slots=True)
class Submit:
    """A job at submit time; counts are 0 where they cannot be known yet."""

    id: int
    uid: int
    #: GPUs of the whole job.
    gpus: int
    nodes: int
    #: GPUs on each node.
    per_node: int
    tasks: int
    max_nodes: int = 0
    user: str = ""
    account: str = ""
    partition: str = ""
    type: str = ""
    hint: str = ""
    slots: SlotsKeys | None = None
    #: 1: the job asks for no GPUs and wants its shape chosen; a count of 0 was left open.
    shape: int = 0
    #: 1: no new job but a new hint for one whose shape was chosen.
    change: int = 0
    tasks_per_node: int = 0
    #: Jobs and updates that the bridge passed unasked, its budget used up, since it was loaded.
    budget_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place(PlacementQuestion):
    """slurmctld asks about a job that is about to start."""

    id: int
    #: What changed in the table of all nodes, and which of them the job may use, too.
    changes: TableChanges | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """A job started or ended (`kind`); never answered."""

    kind: str
    job: int
    array: int
    gpus: Mapping[str, int]
    #: Does the job have shares of these GPUs only?
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Admin:
    """`ping`, `status` or `reload`."""

    verb: str
    id: int


Message = Submit | Place | NodesPart | Notice | Admin


@dataclass(frozen=True, slots=True)
class Ok:
    """Go ahead; `values` are further keys (`set.FIELD`, `env.NAME`, `json`)."""

    values: Mapping[str, str] = field(default_factory=dict)

    def encode(self, message_id: int) -> bytes:
        """The reply's line."""
        return encode("ok", [("id", str(message_id)), *self.values.items()])


@dataclass(frozen=True, slots=True)
class Refuse:
    """Refuse the submit with this one line."""

    message: str

    def encode(self, message_id: int) -> bytes:
        """The reply's line."""
        text = " ".join(self.message.split())[:1000]
        return encode("refuse", [("id", str(message_id)), ("message", text)])


@dataclass(frozen=True, slots=True)
class Pass:
    """Slurm's own choice. `keep_s`: how long the answer to a submit may be used again."""

    note: str = ""
    keep_s: int = 0
    is_quiet: bool = False

    def encode(self, message_id: int) -> bytes:
        """The reply's line."""
        keep = [("keep_s", str(self.keep_s))] if self.keep_s else []
        return encode("pass", [("id", str(message_id)), *keep, *_note(self.note, self.is_quiet)])


@dataclass(frozen=True, slots=True)
class Use:
    """Take exactly these GPUs (node -> mask in Slurm's indices), or `alt` if infeasible."""

    nodes: Mapping[str, int]
    alt: Mapping[str, int] = field(default_factory=dict)
    note: str = ""
    is_quiet: bool = False

    def encode(self, message_id: int) -> bytes:
        """The reply's line."""
        pairs = [("id", str(message_id))]
        pairs += [("node", f"{name}/{mask:x}") for name, mask in self.nodes.items()]
        pairs += [("alt", f"{name}/{mask:x}") for name, mask in self.alt.items()]
        return encode("use", pairs + _note(self.note, self.is_quiet))


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Postpone by at most `seconds`."""

    seconds: int
    note: str = ""
    #: The site's bound on all waits of the job together, in seconds; 0: not said.
    max_wait_s: int = 0
    is_quiet: bool = False

    def encode(self, message_id: int) -> bytes:
        """The reply's line."""
        pairs = [("id", str(message_id)), ("s", str(self.seconds))]
        pairs += [("max_wait_s", str(self.max_wait_s))] if self.max_wait_s else []
        return encode("wait", pairs + _note(self.note, self.is_quiet))


@dataclass(frozen=True, slots=True)
class Error:
    """The request was not understood; `message` says why."""

    message: str

    def encode(self, message_id: int) -> bytes:
        """The reply's line."""
        return encode("error", [("id", str(message_id)), ("message", self.message[:1000])])


PlaceReply = Use | WaitFor | Pass
SubmitReply = Ok | Refuse | Pass
Reply = Ok | Refuse | Pass | Use | WaitFor | Error


def _note(text: str, is_quiet: bool) -> list[tuple[str, str]]:
    """The note, and whether the select plugin is to keep it out of AdminComment."""
    note = [("note", clean_note(text))] if text else []
    return [*note, ("quiet", "1")] if is_quiet else note


class _Fields:
    """The pairs of one message by key, read with bounds."""

    def __init__(self, verb: str, pairs: list[tuple[str, str]]) -> None:
        self.verb = verb
        self.values: dict[str, str] = {}
        self.nodes: list[str] = []
        for key, value in pairs:
            if key == "node":
                self.nodes.append(value)
            elif key in self.values:
                raise ProtocolError(f"{verb}: {key}= is given twice")
            else:
                self.values[key] = value

    def number(self, key: str, default: int | None = None) -> int:
        text = self.values.get(key)
        if text is None and default is not None:
            return default
        if text is None or not _DECIMAL.match(text):
            found = "missing" if text is None else repr(text[:40])
            raise ProtocolError(f"{self.verb}: {key}= is {found}; expected a decimal number")
        return int(text)

    def text(self, key: str, most: int = MAX_NAME_BYTES) -> str:
        raw = self.values.get(key)
        if not raw:
            return ""
        value = unquote(raw)
        if len(value.encode("utf-8", "surrogateescape")) > most:
            raise ProtocolError(f"{self.verb}: {key}= is longer than {most} bytes")
        return value

    def read(self, kind: type[Submit | Place | SlotsKeys]) -> dict[str, Any]:
        """All numbers, flags and texts of a message of this kind but its id."""
        texts, flags, numbers = _READ[kind]
        values: dict[str, Any] = {key: self.text(key, most) for key, most in texts}
        for key in flags:
            values[key] = self.number(key, 0) != 0
        for key, default in numbers:
            values[key] = self.number(key, default)
        return values

    def slots(self) -> SlotsKeys | None:
        """What the slots mode adds; None where the submit is of another mode."""
        if not self.number("slots", 0):
            return None
        keys = SlotsKeys(**self.read(SlotsKeys))
        if keys.form not in FORMS:
            listed = ", ".join(FORMS)
            raise ProtocolError(f"submit: form={keys.form!r}; expected one of {listed}")
        return keys


#: Texts that are names; the others may be longer.
_NAMES = ("user", "account", "partition", "type", "topology", "network", "shared")
#: The numbers, flags and texts of each kind of message, which travel under their own names.
PLAIN_FIELDS = {
    kind: [one for one in fields(kind) if one.type in ("int", "str", "bool")]
    for kind in (Submit, Place, SlotsKeys)
}


def _how_to_read(
    kind: type[Submit | Place | SlotsKeys],
) -> tuple[list[tuple[str, int]], list[str], list[tuple[str, Any]]]:
    """Its texts with the bytes they may have, its flags, and its numbers with their defaults."""
    plain = [one for one in PLAIN_FIELDS[kind] if one.name != "id"]
    texts = [one.name for one in plain if one.type == "str"]
    return (
        [(name, MAX_NAME_BYTES if name in _NAMES else MAX_HINT_BYTES) for name in texts],
        [one.name for one in plain if one.type == "bool"],
        [
            (one.name, None if one.default is MISSING else one.default)
            for one in plain
            if one.type == "int"
        ],
    )


_READ = {kind: _how_to_read(kind) for kind in PLAIN_FIELDS}


def node_masks(texts: Iterable[str]) -> dict[str, int]:
    """`NAME/MASK` values by node name; raises ProtocolError for anything else."""
    masks = {}
    for text in texts:
        match = _NODE_MASK.match(text)
        if match is None or match[1] in masks:
            raise ProtocolError(f"node={text[:60]!r} is not NAME/MASK, or given twice")
        masks[match[1]] = int(match[2], 16)
    return masks


def decode(line: bytes) -> Message:
    """A request line as a message.

    Raises ProtocolError, with the message's id where it could be read.
    """
    if len(line) > MAX_REQUEST_BYTES:
        raise ProtocolError(f"the line is longer than {MAX_REQUEST_BYTES} bytes")
    verb, pairs = split(line)
    given = _Fields(verb, pairs)
    if verb in ("started", "ended"):
        gpus = node_masks(given.nodes)
        shared = given.number("shared", 0) != 0
        return Notice(verb, given.number("job"), given.number("array", 0), gpus, shared)
    message_id = given.number("id")
    try:
        if verb == "place":
            nodes = candidates(given.nodes)
            changed = changes(given.values, given.number)
            place = Place(id=message_id, candidates=nodes, changes=changed, **given.read(Place))
            check_shares(place)
            return place
        if verb == "nodes":
            return nodes_part(given.values, given.number)
        if verb == "submit":
            return Submit(id=message_id, slots=given.slots(), **given.read(Submit))
        if verb in ("ping", "status", "reload"):
            return Admin(verb, message_id)
    except ProtocolError as error:
        raise ProtocolError(str(error), message_id) from error
    raise ProtocolError(
        f"{verb[:40]!r} is no verb; expected submit, place, nodes, started, ended, ping, status or"
        " reload",
        message_id,
    )
