"""The keys that the slots mode adds to a `submit` (docs/protocol.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

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
    begin: int = 0
    time_s: int = 0
    cpus: int = 0
    cpus_per_task: int = 0
    cpus_per_gpu: int = 0
    mem_node_mb: int = 0
    mem_cpu_mb: int = 0
    mem_gpu_mb: int = 0
    exclusive: bool = False
    depends: bool = False
    held: bool = False
    enforce_binding: bool = False
    overcommit: bool = False
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
        found = [("form", self.form)]
        found += [(key, str(int(getattr(self, key)))) for key in (*FLAGS, *NUMBERS)]
        return found + [(key, text) for key in TEXTS if (text := getattr(self, key))]


def _of_type(kind: str) -> tuple[str, ...]:
    return tuple(each.name for each in fields(SlotsKeys) if each.type == kind)


FLAGS, NUMBERS = _of_type("bool"), _of_type("int")
TEXTS = tuple(key for key in _of_type("str") if key != "form")


def read_keys(text: Callable[[str, int], str], number: Callable[[str, int], int]) -> SlotsKeys:
    """The keys of one line; `text` takes the most bytes allowed, `number` a default.

    Raises ProtocolError for an unknown form.
    """
    form = text("form", 16)
    if form not in FORMS:
        raise ProtocolError(f"submit: form={form!r}; expected one of {', '.join(FORMS)}")
    texts = {key: text(key, MAX_TEXT_BYTES) for key in TEXTS}
    numbers = {key: number(key, 0) for key in NUMBERS}
    flags = {key: number(key, 0) != 0 for key in FLAGS}
    return SlotsKeys(form, **texts, **numbers, **flags)  # type: ignore[arg-type]
