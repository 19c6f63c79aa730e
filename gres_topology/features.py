"""Slurm's --constraint on the features of one node: names, `&`, `|`, parentheses.

Users write them, so each is read in one pass, and once for each set of features.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache

#: The longest constraint that is judged, in characters; usual ones are far shorter.
MAX_CHARS = 1024

_TOKEN = re.compile(r"[\w.\-:+/]+|[&|()]")


class Unsupported(Exception):
    """A constraint that cannot be judged node by node."""


def holds(expression: str, features: Collection[str]) -> bool:
    """Does a node with `features` fulfil the expression? `&` and `|` bind alike, from the left.

    Raises Unsupported for any other form, and for more than MAX_CHARS characters.
    """
    if not expression:
        return True
    if len(expression) > MAX_CHARS:
        raise Unsupported(f"of {len(expression)} characters")
    answer = _answer(expression, frozenset(features))
    if answer is None:
        raise Unsupported(expression)
    return answer


@lru_cache(4096)
def _answer(expression: str, features: frozenset[str]) -> bool | None:
    """What `holds` answers; None for any other form."""
    tokens = _TOKEN.findall(expression)
    if "".join(tokens) != expression.replace(" ", ""):
        return None
    # What stands before each parenthesis that is open: its value so far and the operator.
    outside: list[tuple[bool | None, str]] = []
    value: bool | None = None
    operator = ""
    for token in tokens:
        # A term comes first and behind an operator, and nowhere else.
        if (value is None or bool(operator)) is (token in "&|)"):
            return None
        if token in "&|":
            operator = token
        elif token == "(":
            outside.append((value, operator))
            value, operator = None, ""
        else:
            term = token in features
            if token == ")":
                if not outside:
                    return None
                term, (value, operator) = bool(value), outside.pop()
            if operator == "&":
                term = bool(value) and term
            elif operator == "|":
                term = bool(value) or term
            value, operator = term, ""
    return None if outside or operator else value is not False
