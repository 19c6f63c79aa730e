"""The keys that the slots mode adds to a `submit` (docs/protocol.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from slurm_plugin.errors import ProtocolError

MAX_TEXT_BYTES = 4096
FORMS = ("node", "job", "task", "socket")


@dataclass(frozen=True, slots=True)
class SlotsKeys:
    """What the slots mode adds to a submit, named as in docs/protocol.md; 0 or '' is unset."""

    form: str
    batch: bool = True
    array: bool = False
    het: bool = False
    exclusive: bool = False
    depends: bool = False
    held: bool = False
    enforce_binding: bool = False
    overcommit: bool = False
    begin: int = 0
    time_s: int = 0
    cpus: int = 0
    cpus_per_task: int = 0
    cpus_per_gpu: int = 0
    mem_node_mb: int = 0
    mem_cpu_mb: int = 0
    mem_gpu_mb: int = 0
    features: str = ""
    req_nodes: str = ""
    exc_nodes: str = ""
    reservation: str = ""
    tpn: str = ""
    tpj: str = ""
    tpt: str = ""
    tps: str = ""

    def pairs(self) -> list[tuple[str, str]]:
        """The keys and values as they travel; a text that is unset does not."""
        values = ((key, getattr(self, key)) for key in _TYPES)
        return [(k, v if isinstance(v, str) else str(int(v))) for k, v in values if v != ""]


#: Each key's type; all but `form` may be left out.
_TYPES = {field.name: str(field.type) for field in fields(SlotsKeys)}


def read_keys(text: Callable[[str, int], str], number: Callable[[str, int], int]) -> SlotsKeys:
    """The keys of one line; `text` takes the most bytes allowed, `number` a default.

    Raises ProtocolError for an unknown form.
    """
    form = text("form", 16)
    if form not in FORMS:
        raise ProtocolError(f"submit: form={form!r}; expected one of {', '.join(FORMS)}")
    values: dict[str, Any] = {"form": form}
    for key, kind in list(_TYPES.items())[1:]:
        value: str | int = text(key, MAX_TEXT_BYTES) if kind == "str" else number(key, 0)
        values[key] = value != 0 if kind == "bool" else value
    return SlotsKeys(**values)
