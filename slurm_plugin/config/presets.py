"""Middleware presets: those we ship, and a site's own in a file of the same form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from slurm_plugin.base.preset import (
    GPU_FIELDS,
    JOB_FIELDS,
    MOST_PORTS,
    SERVER_FIELDS,
    Preset,
    unknown_fields,
)
from slurm_plugin.errors import NO_YAML_VALUE, RemoteError

FOLDER = Path(__file__).parent / "presets"
_TEXTS = ("name", "about")
_FLAGS = ("authenticates", "loopback", "takes_port")
_MAPS = ("environment", "each_gpu", "each_word")
#: Whole numbers: what is meant without them, and their bounds.
_COUNTS = {"max_donors": (0, 0, 64), "ports": (1, 1, MOST_PORTS)}
KEYS = (*_TEXTS, "server", *_FLAGS, *_COUNTS, *_MAPS)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def names() -> list[str]:
    """The presets that come with the package, in order."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def is_file(name: str) -> bool:
    """Does a preset of this name come from the site's own file?"""
    return name.endswith((".yaml", ".yml"))


def load(name: str, folder: Path = Path("/etc/slurm")) -> Preset:
    """The preset of this name, or in this file (relative to `folder`; it ends in .yaml).

    Raises RemoteError: one line with the file, the key and what is expected.
    """
    path = FOLDER / f"{name}.yaml"
    if is_file(name):
        path = folder / name
    elif name not in names():
        known = ", ".join(names())
        raise RemoteError(f"{name!r} is no preset; expected one of {known}, or a file NAME.yaml")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, *NO_YAML_VALUE) as error:
        raise RemoteError(f"{path}: cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise RemoteError(f"{path}: expected keys and values")
    try:
        return _preset(values)
    except ValueError as error:
        raise RemoteError(f"{path}: {error}") from error


def _preset(values: Mapping[Any, Any]) -> Preset:
    for key in values:
        if key not in KEYS:
            raise ValueError(f"{key}: unknown key; allowed: {', '.join(KEYS)}")
    texts = {key: values.get(key, "") for key in _TEXTS}
    if not isinstance(texts["name"], str) or not re.fullmatch(r"[\w.-]{1,32}", texts["name"]):
        raise ValueError("name: expected a word of at most 32 characters")
    flags = {key: values[key] for key in _FLAGS if key in values}
    for key, value in flags.items():
        if not isinstance(value, bool):
            raise ValueError(f"{key}: {value!r}; expected yes or no")
    counts = {key: _count(key, values.get(key, usual)) for key, (usual, *_) in _COUNTS.items()}
    server = _server(values.get("server"), flags)
    for_job = _variables("environment", values.get("environment"), JOB_FIELDS, False)
    for_gpus = _variables("each_gpu", values.get("each_gpu"), GPU_FIELDS, True)
    words = _variables("each_word", values.get("each_word"), GPU_FIELDS, False)
    if not (for_job or for_gpus or words):
        raise ValueError("environment: missing; the job's tasks would not find the servers")
    return Preset(
        texts["name"],
        str(texts["about"]),
        server,
        **flags,
        ports=counts["ports"],
        max_donors=counts["max_donors"],
        environment=for_job,
        each_gpu=for_gpus,
        each_word=words,
    )


def _count(key: str, value: object) -> int:
    _, low, high = _COUNTS[key]
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{key}: {value!r}; expected a whole number from {low} to {high}")
    return value


def _server(value: object, flags: Mapping[str, bool]) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError("server: expected a list of words: [my-server, --port, '{port}']")
    words = tuple(str(word) for word in value)
    for word in words:
        _check("server", word, SERVER_FIELDS)
    text = " ".join(words)
    if flags.get("takes_port", True) and "{port}" not in text:
        raise ValueError("server: expected {port} in it, or takes_port: no")
    is_open = flags.get("authenticates", False)
    if not is_open and flags.get("loopback", True) and "{bind}" not in text:
        raise ValueError(
            "server: expected {bind} in it (the address to listen on), or loopback: no"
        )
    return words


def _variables(key: str, value: object, fields: frozenset[str], in_names: bool) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{key}: expected variables and their values")
    variables = {str(name): str(text) for name, text in value.items()}
    for name, text in variables.items():
        if in_names:
            _check(key, name, fields)
        plain = name.replace("{i}", "0") if in_names else name
        if not _VARIABLE.match(plain):
            raise ValueError(f"{key}: {name!r} is no name of a variable")
        if "\n" in text or "\0" in text:
            raise ValueError(f"{key}.{name}: expected one line")
        _check(f"{key}.{name}", text, fields)
    return variables


def _check(key: str, text: str, fields: frozenset[str]) -> None:
    try:
        unknown = unknown_fields(text, fields)
    except ValueError as error:
        raise ValueError(f"{key}: {text!r}: {error}") from error
    if unknown:
        allowed = ", ".join(sorted(fields))
        raise ValueError(f"{key}: {{{unknown[0]}}} in {text!r}; allowed between braces: {allowed}")
