"""Hints: the grammar of what users write, and the reference of its keys."""

from policies.hints.grammar import (
    MAX_BYTES,
    OFF,
    Hints,
    parse,
    policy_of,
    supported_keys,
    to_request,
    to_running,
)

__all__ = [
    "MAX_BYTES",
    "OFF",
    "Hints",
    "parse",
    "policy_of",
    "supported_keys",
    "to_request",
    "to_running",
]
