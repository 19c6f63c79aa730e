"""The file of marks: a JSON object per line, one part of one node each; replaced as a whole.

A mark names GPUs as the node's tools do: the topology's own index, not Slurm's.
"""

from __future__ import annotations

import fcntl
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from gres_topology.topology import Impairment
from slurm_plugin.base import whole_file
from slurm_plugin.base.rows_file import NO_JSON
from slurm_plugin.errors import PluginError

logger = logging.getLogger(__name__)

#: The file in the state directory.
NAME = "marks.jsonl"
#: A larger file is none of ours; a node has some hundred parts at most.
MAX_BYTES, MOST_MARKS = 8 << 20, 20_000
#: A change takes milliseconds.
LONGEST_WAIT_S = 10.0
EXPECTED_PART = "`gpu 3`, `link 2-3` or `power`"
EXPECTED_STATE = "broken, degraded with a share between 0 and 1, or capped with watts of watts"

_PART = re.compile(r"gpu (\d{1,3})\Z|link (\d{1,3})-(\d{1,3})\Z|(power)\Z")
_Text = Annotated[str, msgspec.Meta(max_length=200)]
#: Slurm's node names have no more.
_Node = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9._-]{1,128}\Z")]
_Watts = Annotated[float, msgspec.Meta(gt=0, le=1e7)]


class Mark(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One part of one node. Raises ValueError where its values cannot go together."""

    node: _Node
    #: `gpu I`, `link I-J` or `power`.
    part: str
    #: `broken`, `degraded` or `capped`.
    state: str
    #: What a degraded part, or a node with capped power, still delivers.
    share: Annotated[float, msgspec.Meta(gt=0, lt=1)] | None = None
    #: Of a cap: the limit, and what the node takes without; the share where none was measured.
    watts: _Watts | None = None
    of_watts: _Watts | None = None
    #: Epoch.
    since: Annotated[int, msgspec.Meta(ge=0)] = 0
    by: _Text = ""
    why: _Text = ""
    #: The report that it was read from; empty for one made by hand.
    source: _Text = ""

    def __post_init__(self) -> None:
        gpus = self.gpus
        states = ("capped",) if not gpus else ("broken", "degraded")
        if self.state not in states:
            what = "a cap" if not gpus else "no power"
            raise ValueError(f"{self.part} is {self.state!r}; expected {what}: {EXPECTED_STATE}")
        if self.state == "degraded" and self.share is None:
            raise ValueError(f"{self.part} is degraded; expected its share, between 0 and 1")
        if self.state == "capped":
            is_told = self.watts is not None and self.of_watts is not None
            if is_told and self.watts >= self.of_watts:  # type: ignore[operator]
                raise ValueError(f"{self.watts:g} of {self.of_watts:g} watts; expected a cap")
            if not is_told and self.share is None:
                raise ValueError("power is capped; expected watts and of_watts, or a share")

    @property
    def gpus(self) -> tuple[int, ...]:
        """The GPUs that the part names, ascending; ValueError where it is none."""
        match = _PART.match(self.part)
        if match is None:
            raise ValueError(f"part {self.part[:60]!r}; expected {EXPECTED_PART}")
        gpus = tuple(int(number) for number in match.groups()[:3] if number is not None)
        if len(gpus) == 2 and gpus[0] >= gpus[1]:
            raise ValueError(f"{self.part}; expected two GPUs, the lower one first")
        return gpus

    @property
    def left(self) -> float:
        """What it still delivers, in [0, 1)."""
        if self.state == "broken":
            return 0.0
        if self.share is not None:
            return self.share
        assert self.watts is not None
        assert self.of_watts is not None
        return self.watts / self.of_watts

    def impairment(self) -> Impairment:
        """As the topology knows it."""
        said = [text for text in (self.why, self.source, self.by and f"by {self.by}") if text]
        return Impairment(self.gpus, self.left, ", ".join(said))

    def text(self) -> str:
        """`link 2-3 degraded to 50 %`."""
        if self.state == "capped" and self.watts is not None and self.of_watts is not None:
            share = f", delivers {100 * self.share:.3g} %" if self.share is not None else ""
            return f"{self.part} capped at {self.watts:g} of {self.of_watts:g} W{share}"
        return f"{self.part} {self.state}" + (f" to {100 * self.left:.3g} %" if self.left else "")


#: Marks by node.
Marks = Mapping[str, tuple[Mark, ...]]

_DECODE = msgspec.json.Decoder(Mark)


def path_in(state_dir: Path) -> Path:
    """Where a site's marks are."""
    return state_dir / NAME


def read(path: Path) -> Marks:
    """All marks; none where there is no file. PluginError that names the line otherwise."""
    try:
        content = whole_file.read(path, MAX_BYTES)
    except FileNotFoundError:
        return {}
    if len(content) > MAX_BYTES:
        raise PluginError(f"{path}: more than {MAX_BYTES >> 20} MiB; expected a mark per line")
    marks: dict[str, dict[str, Mark]] = {}
    lines = content.splitlines()
    if len(lines) > MOST_MARKS:
        raise PluginError(f"{path}: {len(lines)} lines; expected at most {MOST_MARKS}")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            mark = _DECODE.decode(line)
        except NO_JSON as error:
            text = " ".join(str(error).split())[:300]
            raise PluginError(f"{path}:{number}: {text}; correct the line, or unmark") from None
        if mark.part in marks.setdefault(mark.node, {}):
            raise PluginError(f"{path}:{number}: {mark.node} {mark.part} is marked twice")
        marks[mark.node][mark.part] = mark
    return {node: tuple(parts.values()) for node, parts in marks.items()}


def change(path: Path, changed: Callable[[Mark], bool], new: Iterable[Mark] = ()) -> list[Mark]:
    """Take away the marks that are `changed` and those of the same parts, and write the new ones.

    The marks taken away. One command at a time: others wait, for some seconds. PluginError where
    that cannot be.
    """
    with whole_file.folder_of(path) as folder:
        _lock(folder, path)
        old = [mark for marks in read(path).values() for mark in marks]
        fresh = {(mark.node, mark.part): mark for mark in new}
        gone = [mark for mark in old if changed(mark) or (mark.node, mark.part) in fresh]
        kept = [mark for mark in old if mark not in gone]
        rows = sorted([*kept, *fresh.values()], key=_place)
        if len(rows) > MOST_MARKS:
            raise PluginError(f"{path}: {len(rows)} marks; expected at most {MOST_MARKS}")
        content = b"".join(msgspec.json.encode(mark) + b"\n" for mark in rows)
        if path.exists():
            whole_file.replace_contents(path, content)
        else:
            whole_file.replace(path, content, 0o644)
        return gone


def _lock(folder: int, path: Path) -> None:
    """Lock the folder; PluginError where somebody keeps the lock, which takes no right to write."""
    end = time.monotonic() + LONGEST_WAIT_S
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise PluginError(
                    f"{path}: another command has had its folder locked for {LONGEST_WAIT_S:g} s;"
                    f" lslocks, or fuser -v {path.parent}, says which: end it, and try again"
                ) from None
            time.sleep(0.05)
        else:
            return


def _place(mark: Mark) -> tuple[str, int, tuple[int, ...]]:
    """Where a mark stands in the file: by node, the node itself, its GPUs, its links."""
    return mark.node, len(mark.gpus), mark.gpus


class MarksInForce:
    """The last marks that could be read; a damaged file changes nothing and costs one log line."""

    def __init__(self) -> None:
        self.marks: Marks = {}
        #: What is wrong with the file, empty where nothing is.
        self.problem = ""
        self._stamp: tuple[int, ...] = ()

    def update(self, path: Path) -> Marks:
        """Read the file again."""
        self._stamp = whole_file.stamp(path)
        try:
            self.marks, self.problem = read(path), ""
        except PluginError as error:
            if str(error) != self.problem:
                logger.error("%s; the marks read last stay", error)
            self.problem = str(error)
        return self.marks

    def is_outdated(self, path: Path) -> bool:
        """Whether the file changed since it was read."""
        return whole_file.stamp(path) != self._stamp

    def shown(self, most: int) -> dict[str, Any]:
        """What `gputopo status` shows of them: the first nodes, how many there are."""
        nodes = {n: [mark.text() for mark in self.marks[n]] for n in sorted(self.marks)[:most]}
        return {"nodes": nodes, "count": len(self.marks), "problem": self.problem}
