"""Slurm's --constraint on the features of one node: names, `&`, `|`, parentheses."""

from __future__ import annotations

import re
from collections.abc import Collection

_TOKEN = re.compile(r"[\w.\-:+/]+|[&|()]")


class Unsupported(Exception):
    """A constraint about several nodes at once, which cannot be judged node by node."""


def holds(expression: str, features: Collection[str]) -> bool:
    """Does a node with `features` fulfil the expression?

    `&` and `|` bind alike, from left to right. Raises Unsupported for any other form.
    """
    tokens = _TOKEN.findall(expression)
    if "".join(tokens) != expression.replace(" ", ""):
        raise Unsupported(expression)
    if not tokens:
        return True
    value, rest = _chain(tokens, features)
    if rest:
        raise Unsupported(expression)
    return value


def _chain(tokens: list[str], features: Collection[str]) -> tuple[bool, list[str]]:
    value, rest = _term(tokens, features)
    while rest and rest[0] in "&|":
        other, after = _term(rest[1:], features)
        value = (value and other) if rest[0] == "&" else (value or other)
        rest = after
    return value, rest


def _term(tokens: list[str], features: Collection[str]) -> tuple[bool, list[str]]:
    if not tokens or tokens[0] in "&|)":
        raise Unsupported("".join(tokens))
    if tokens[0] != "(":
        return tokens[0] in features, tokens[1:]
    value, rest = _chain(tokens[1:], features)
    if not rest or rest[0] != ")":
        raise Unsupported("".join(tokens))
    return value, rest[1:]
