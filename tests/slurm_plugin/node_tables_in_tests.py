"""Tables of nodes as slurmctld's plugin tells them: whole, in two parts, looked over slowly."""

from collections.abc import Sequence
from dataclasses import replace
from threading import Event

from bench.request_lines import encode_request
from slurm_plugin.base.node_lines import NodesPart
from slurm_plugin.serve.service import Engine

TABLE = 0xBEEF
_COLUMNS = ("names", "total", "free", "weight", "type")


def table_of(
    names: Sequence[str], total: Sequence[int], free: Sequence[int], **more: Sequence[object]
) -> NodesPart:
    """A table that comes in one piece; `more`: columns in place of the usual ones."""
    columns = {"weight": [1] * len(names), "type": [""] * len(names), **more}
    return NodesPart(1, TABLE, 1, 1, 0, names, total, list(free), **columns)


def halves(whole: NodesPart, at: int) -> list[NodesPart]:
    """The table in two parts, of which the second begins with this node."""
    return [
        replace(
            whole,
            **{name: getattr(whole, name)[begin:end] for name in _COLUMNS},
            part=number,
            parts=2,
            first=begin,
        )
        for number, (begin, end) in enumerate(((0, at), (at, None)), 1)
    ]


async def told(engine: Engine, part: NodesPart) -> str:
    """What the engine says to a line about nodes."""
    answer = engine.answer(encode_request(part))
    return (answer.reply if answer.later is None else await answer.later).decode()


class SlowLook:
    """In the place of `look_over`: says when it has begun, and ends when it may."""

    def __init__(self) -> None:
        self.begun, self.may_end = Event(), Event()

    def __call__(self, *_: object, **__: object) -> bool:
        self.begun.set()
        return self.may_end.wait(30)
