"""What gputopo.yaml may hold, for people (Markdown tables) and for editors (JSON Schema)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING
from pathlib import Path
from typing import Any

from policies.contract.scheduling import CLASSES
from policies.registry import registry
from slurm_plugin.config.key import Key, keys_of
from slurm_plugin.config.sections import GRES_CONF, IDENTITY
from slurm_plugin.config.settings import Config

#: How the sections below a key are written, and named in the tables.
_MEMBERS = {"list": "[]", "node sets": "[]", "named": ".NAME", "rules": ".NAME"}
#: Kinds that go by a plainer name in the tables.
_KINDS_SHOWN = {
    "named": "section",
    "rules": "section",
    "patterns": "section",
    "node sets": "list",
    "preset": "text",
    "measured": "path",
    "host list": "text",
    "features": "text",
}

_WORD = {"type": "string"}
_SCALAR = {"type": ["string", "number", "boolean"]}
_WORDS = {"type": "array", "items": _WORD}
#: What an editor may check of a value, by its kind; others are words.
_SHAPES: dict[str, dict[str, Any]] = {
    "words": _WORDS,
    "patterns": {"type": "object", "additionalProperties": _WORD},
    "address": {"type": "string", "pattern": r"^.+:\d+$"},
    "ports": {"type": "string", "pattern": r"^\d+-\d+$"},
    "classes": {
        "type": "object",
        "minProperties": 1,
        "properties": dict.fromkeys(CLASSES, _SCALAR),
        "additionalProperties": False,
    },
    "demand": {"anyOf": [{"const": "learned"}, {"type": "object", "minProperties": 1}]},
    "index": {
        "anyOf": [
            {"enum": [IDENTITY, GRES_CONF]},
            {"type": "array", "items": {"type": "integer"}, "minItems": 1},
        ]
    },
}


def markdown(config: type = Config) -> str:
    """The tables of docs/configuration.md: one per section, one line per key."""
    lines = []
    for title, cls in sections(cls=config):
        lines += [f"### {title}", "", "| key | type | default | meaning |", "|---|---|---|---|"]
        for key in keys_of(cls):
            kind = kind_of(key).replace("|", "\\|")
            lines.append(f"| `{key.name}` | {kind} | {default(key)} | {key.about} |")
        lines.append("")
    return "\n".join(lines)


def rows(config: type = Config) -> list[dict[str, str]]:
    """The same as plain values: section, key, type, default and meaning of each."""
    return [
        {
            "section": title.strip("`"),
            "key": key.name,
            "type": kind_of(key).replace("`", ""),
            "default": default(key).strip("`"),
            "meaning": key.about,
        }
        for title, cls in sections(cls=config)
        for key in keys_of(cls)
    ]


def sections(name: str = "", cls: type = Config) -> Iterator[tuple[str, type]]:
    """Every section by its title, those below a section right after it."""
    yield f"`{name}`" if name else "Top level", cls
    for key in keys_of(cls):
        if key.section and keys_of(key.section):
            full = f"{name}.{key.name}".lstrip(".") + _MEMBERS.get(key.kind, "")
            yield from sections(full, key.section)


def kind_of(key: Key) -> str:
    """The kind in a word, or what may stand there: `a` | `b`."""
    choices = " | ".join(f"`{choice}`" for choice in key.choices)
    return choices or _KINDS_SHOWN.get(key.kind, key.kind)


def default(key: Key) -> str:
    """The default as one would write it; empty where nothing stands for it."""
    if key.is_required:
        return "required"
    value = key.shown
    if not value and not key.inherits and key.default not in (MISSING, None, ()):
        value = {True: "yes", False: "no"}[key.default] if key.kind == "flag" else str(key.default)
    return f"`{value}`" if value else ""


def json_schema(config: type = Config) -> dict[str, Any]:
    """A JSON Schema (draft 2020-12) of the whole file."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "gputopo.yaml"}
    return head | _object(config)


def _object(cls: type) -> dict[str, Any]:
    keys = keys_of(cls)
    schema = {
        "type": ["object", "null"],
        "properties": {key.name: _property(key) for key in keys},
        "additionalProperties": False,
    }
    required = [key.name for key in keys if key.is_required]
    return schema | ({"required": required} if required else {})


def _property(key: Key) -> dict[str, Any]:
    shape = {"description": key.about} | _shape(key)
    value = key.default
    if isinstance(value, str | Path | bool):
        value = default(key).strip("`")
    if isinstance(value, str | int | float) and not key.inherits:
        shape["default"] = value
    return shape


def _shape(key: Key) -> dict[str, Any]:
    if key.choices:
        return {"enum": list(key.choices)}
    if key.kind in ("integer", "number"):
        return {"type": key.kind, "minimum": key.low, "maximum": key.high}
    if key.kind == "hint keys":
        return {"type": "array", "items": {"enum": list(registry.keys)}}
    if key.kind == "hints":
        return {"type": "object", "propertyNames": {"enum": list(registry.keys)}}
    if key.section is None or key.kind in _SHAPES:
        return _SHAPES.get(key.kind, _WORD)
    inner = _object(key.section)
    if _MEMBERS.get(key.kind) == "[]":
        return {"type": "array", "items": inner}
    if _MEMBERS.get(key.kind) == ".NAME":
        return {"type": ["object", "null"], "additionalProperties": inner}
    return inner
