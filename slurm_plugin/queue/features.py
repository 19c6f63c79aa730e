"""Slurm's --constraint on the features of one node: names, `&`, `|`, parentheses.

Users write them, so each is read once, in one pass, and judged once for each set of features,
however many nodes there are and however often the queue is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache

#: The longest constraint that is judged, in characters; usual ones are far shorter.
MAX_CHARS = 1024

_TOKEN = re.compile(r"[\w.\-:+/]+|[&|()]")
#: How many constraints, and how many answers, are remembered.
_KEPT, _KEPT_ANSWERS = 512, 4096


class Unsupported(Exception):
    """A constraint that cannot be judged node by node."""


def holds(expression: str, features: Collection[str]) -> bool:
    """Does a node with `features` fulfil the expression?

    `&` and `|` bind alike, from left to right. Raises Unsupported for any other form, and for one
    that is longer than MAX_CHARS.
    """
    if not expression:
        return True
    if len(expression) > MAX_CHARS:
        raise Unsupported(f"of {len(expression)} characters")
    if _read(expression) is None:
        raise Unsupported(expression)
    return _answer(expression, frozenset(features))


@lru_cache(_KEPT_ANSWERS)
def _answer(expression: str, features: frozenset[str]) -> bool:
    steps = _read(expression) or ()
    values: list[bool] = []
    for step in steps:
        if step not in ("&", "|"):
            values.append(step in features)
            continue
        last = values.pop()
        values[-1] = (values[-1] and last) if step == "&" else (values[-1] or last)
    return values[-1] if values else True


@lru_cache(_KEPT)
def _read(expression: str) -> tuple[str, ...] | None:
    """The expression with each `&` and `|` behind its two sides; None for any other form."""
    tokens = _TOKEN.findall(expression)
    if "".join(tokens) != expression.replace(" ", ""):
        return None
    steps: list[str] = []
    # Operators and parentheses that are still open; a term comes next, or does not.
    waiting: list[str] = []
    wants_term = True
    for token in tokens:
        is_term = token not in "&|)"
        if is_term is not wants_term:
            return None
        if token == "(":
            waiting.append(token)
        elif token in "&|":
            waiting.append(token)
            wants_term = True
        else:
            if token == ")":
                if not waiting or waiting.pop() != "(":
                    return None
            else:
                steps.append(token)
            if waiting and waiting[-1] in "&|":
                steps.append(waiting.pop())
            wants_term = False
    return None if waiting or (tokens and wants_term) else tuple(steps)
