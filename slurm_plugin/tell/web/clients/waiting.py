"""Texts on their way to clients who have not taken them yet: how much of memory they may keep.

All who see the same are sent the very same bytes, of which a connection has a copy of a piece or
two. What a slow client keeps is the version that it is still being sent, after all others have gone
on to the next one: so many versions, once for all who are sent the same one, are counted here.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

#: What is copied for a connection at a time; the next piece follows when it is taken.
PIECE = 1 << 16
#: Bytes that wait for those who see the same, and for all.
MAX_OF_ONE, MAX_IN_ALL = 8 << 20, 64 << 20


@dataclass(eq=False, slots=True)
class _Reader:
    """A connection that is being sent a text."""

    whose: Hashable
    text: bytes
    transport: asyncio.Transport | None


class Waiting:
    """Who keeps too many bytes waiting loses the reader that has waited longest."""

    def __init__(self) -> None:
        #: The oldest first.
        self._readers: dict[_Reader, None] = {}
        #: How many readers each text has, by whose it is and its identity.
        self._of_text: Counter[tuple[Hashable, int]] = Counter()
        self._bytes: Counter[Hashable] = Counter()

    @contextmanager
    def sent(
        self, whose: Hashable, text: bytes, transport: asyncio.Transport | None
    ) -> Iterator[None]:
        """While this text is being sent; it may be the connection's end."""
        reader = _Reader(whose, text, transport)
        self._readers[reader] = None
        self._of_text[whose, id(text)] += 1
        if self._of_text[whose, id(text)] == 1:
            self._bytes[whose] += len(text)
            self._make_room(reader)
        try:
            yield
        finally:
            self._forget(reader)

    @property
    def bytes(self) -> int:
        """The bytes that wait to be sent, of all readers together."""
        return self._bytes.total()

    def _make_room(self, newest: _Reader) -> None:
        while True:
            most = newest.whose
            if self._bytes[most] <= MAX_OF_ONE:
                if self.bytes <= MAX_IN_ALL:
                    return
                most = max(self._bytes, key=self._bytes.__getitem__)
            # The newest itself goes last: one text may be larger than all that one may have.
            goes = next((one for one in self._readers if one.whose == most), newest)
            if goes is newest:
                return
            self._forget(goes)
            if goes.transport is not None:
                goes.transport.abort()

    def _forget(self, reader: _Reader) -> None:
        if reader not in self._readers:
            return
        del self._readers[reader]
        key = (reader.whose, id(reader.text))
        self._of_text[key] -= 1
        if not self._of_text[key]:
            del self._of_text[key]
            self._bytes[reader.whose] -= len(reader.text)
            if not self._bytes[reader.whose]:
                del self._bytes[reader.whose]


def in_pieces(text: bytes) -> Iterator[bytes]:
    """The text, of which no more than a piece is ever copied."""
    for start in range(0, len(text), PIECE):
        yield text[start : start + PIECE]
