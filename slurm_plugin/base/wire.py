"""One line on the wire, whatever it says: a verb and key=value pairs, percent-encoded."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote_to_bytes

from slurm_plugin.errors import ProtocolError, in_one_line

MAX_NOTE_BYTES = 200

_KEY = re.compile(r"[a-zA-Z0-9_.]+\Z")
#: A whole line, so that the words of a good one need not be looked at one by one.
_LINE = re.compile(r"[a-zA-Z0-9_.]+(?: [a-zA-Z0-9_.]+=[!-~]*)*\Z")
_UNSAFE = re.compile(rb"[^\x21-\x24\x26-\x7e]")
_BAD_PERCENT = re.compile(r"%(?![0-9a-fA-F]{2})")


def clean_note(text: str) -> str:
    """`text` as a note may be: one line, printable, no bracket, at most 200 bytes."""
    plain = text
    if not text.isprintable():
        plain = in_one_line(text)
    plain = " ".join(plain.replace("]", ")").replace("[", "(").replace("|", "/").split())
    return plain.encode()[:MAX_NOTE_BYTES].decode(errors="ignore")


def quote(text: str) -> str:
    """A value as it travels: every byte outside 0x21-0x7e, and `%`, as `%XX`."""
    raw = text.encode("utf-8", "surrogateescape")
    return _UNSAFE.sub(lambda m: b"%%%02X" % m[0][0], raw).decode("ascii")


def unquote(text: str) -> str:
    """The value behind `quote`; raises ProtocolError for a broken `%XX`."""
    if "%" not in text:
        return text
    if _BAD_PERCENT.search(text):
        raise ProtocolError("a % in a value is not followed by two hexadecimal digits")
    return unquote_to_bytes(text).decode("utf-8", "surrogateescape")


def encode(verb: str, pairs: Iterable[tuple[str, str]]) -> bytes:
    """One message line, LF included; ProtocolError for a key that is not `[a-z_.A-Z0-9]+`."""
    parts = [verb]
    for key, value in pairs:
        if not _KEY.match(key):
            raise ProtocolError(f"{key!r} is no key: expected letters, digits, _ and .")
        parts.append(f"{key}={quote(value)}")
    return " ".join(parts).encode("ascii") + b"\n"


def split(line: bytes) -> tuple[str, list[tuple[str, str]]]:
    """A line (with or without LF) as verb and pairs, values still percent-encoded.

    Raises ProtocolError for anything but `VERB SP key=value ...`.
    """
    line = line[:-1] if line.endswith(b"\n") else line
    text = line.decode("ascii", "replace")
    if _LINE.match(text):
        verb, *words = text.split(" ")
        return verb, [(key, value) for key, _, value in [word.partition("=") for word in words]]
    if not text.isascii() or not text.isprintable():
        raise ProtocolError("a line holds bytes outside 0x20-0x7e; encode them as %XX")
    verb, *words = text.split(" ")
    if not _KEY.match(verb):
        raise ProtocolError("a line starts with a verb, then key=value, one space between")
    pairs = []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not _KEY.match(key):
            raise ProtocolError(f"{word[:40]!r} is not key=value")
        pairs.append((key, value))
    return verb, pairs
