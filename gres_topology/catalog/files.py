"""The catalog's files: a machine each, in YAML."""

from __future__ import annotations

from functools import cache
from importlib import resources


@cache
def names() -> tuple[str, ...]:
    """The machines of the catalog, sorted."""
    files = resources.files(__package__).iterdir()
    return tuple(sorted(f.name.removesuffix(".yaml") for f in files if f.name.endswith(".yaml")))


def text(name: str) -> str:
    """What the file of one of `names` says."""
    return resources.files(__package__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")


def source(name: str) -> str:
    """How errors name that file."""
    return f"catalog/{name}.yaml"
