"""Loads third parties' policies, once per process."""

from __future__ import annotations

from functools import cache

from policies.registry import registry


@cache
def load_policies() -> None:
    """Register what is installed under the entry point group; a broken one is logged."""
    registry.load_plugins()
