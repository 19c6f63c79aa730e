"""The one base exception of this folder, and a guess that messages end with."""

from collections.abc import Iterable


class TopologyError(ValueError):
    """A topology could not be read or does not make sense.

    The message says what was read (file, line, cell), what was expected, and what to do.
    """


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean ring?` for the known word that is nearest to a wrong one, '' for none."""
    from difflib import get_close_matches  # needed for mistakes alone

    near = get_close_matches(word[:80], list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""
