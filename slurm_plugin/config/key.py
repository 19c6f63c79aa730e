"""Settings classes: each field is one key of gputopo.yaml, declared once.

A settings class is a frozen dataclass. Meaning, bounds and an example of a key stand in its field's
`metadata`, under the names of Key's fields; `setting` writes it. `yaml_reader` reads an instance
from YAML, `reference` prints docs/configuration.md and the JSON Schema.

A class may have `conflict()`: the key and what is wrong where values cannot go together, else None.
A policy declares its own class with `policies.contract.settings.setting`; it becomes a section.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Value = TypeVar("Value")

#: The kind of a plain annotation; any other needs `kind` in the field's metadata.
KINDS = {
    bool: "flag",
    int: "integer",
    float: "number",
    str: "text",
    Path: "path",
    tuple[str, ...]: "words",
}


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a section."""

    name: str
    #: A name in `Reader.kinds`, or how sections are nested: "section" (one), "list", or "named".
    kind: str
    #: MISSING where the key must be given or the default is computed.
    default: Any
    is_required: bool
    #: The meaning in one line.
    about: str
    choices: tuple[str, ...] = ()
    #: The settings class of a section, or of each member of a list or of named sections.
    section: type | None = None
    #: Bounds of a number, both allowed.
    low: float = 0
    high: float = 2**31
    #: A value as one would write it, where the default shows none.
    example: str = ""
    #: The default as one would write it, where it is computed.
    shown: str = ""
    #: Unset, it is what the key of this name in the section above says.
    inherits: bool = False


def setting(default: Value, about: str, **stated: Any) -> Value:
    """A field of a settings class: one key, its default, and what else Key says of it."""
    made: Value = field(default=default, metadata={"about": about, **stated})
    return made


def computed(factory: Callable[[], Value], about: str, **stated: Any) -> Value:
    """A key whose default is made anew for each instance."""
    made: Value = field(default_factory=factory, metadata={"about": about, **stated})
    return made


def required(about: str, **stated: Any) -> Any:
    """A key that must be given."""
    return field(metadata={"about": about, **stated})


def keys_of(settings: Any) -> tuple[Key, ...]:
    """The keys of a settings class, in order; TypeError or KeyError for a wrong declaration."""
    types = get_type_hints(settings)
    keys = []
    for one in fields(settings):
        if not one.metadata:
            continue
        stated = {name: value for name, value in one.metadata.items() if name != "kind"}
        kind, choices, section = _declared(types[one.name], one.metadata.get("kind", ""))
        stated |= {"choices": choices, "section": section}
        is_required = one.default is MISSING and one.default_factory is MISSING
        keys.append(Key(one.name, kind, one.default, is_required, **stated))
    return tuple(keys)


def _declared(annotation: Any, kind: str) -> tuple[str, tuple[str, ...], type | None]:
    """The kind, choices and settings class that an annotation stands for; a stated kind wins."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType) and not kind:
        [annotation] = [one for one in inner if one is not NoneType]
        return _declared(annotation, kind)
    if origin is Literal:
        return kind or "choice", inner, None
    nested = {tuple: "list", None: "section"}.get(origin, "named")
    member = annotation if origin is None else inner[-1] if nested == "named" else inner[0]
    if is_dataclass(member) and isinstance(member, type):
        return kind or nested, (), member
    return kind or KINDS[annotation], ("no", "yes") if annotation is bool else (), None
