"""CPU lists as the tools print them: `0-3,8`, `n-n`, hexadecimal masks."""

from __future__ import annotations

from collections.abc import Iterable

#: No machine has more logical CPUs or NUMA nodes than this; larger numbers are damage.
MAX_CPUS = 1 << 16


def parse_list(text: str) -> tuple[int, ...]:
    """`0-2,8` -> (0, 1, 2, 8), sorted, without duplicates.

    Raises ValueError with what was expected for anything else.
    """
    numbers: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (_is_number(first) and (not dash or _is_number(last))):
            raise ValueError(f"'{text}' is not a list such as 0-3,8")
        low, high = int(first), int(last) if dash else int(first)
        if low > high or high >= MAX_CPUS:
            raise ValueError(f"'{part.strip()}' is not a range below {MAX_CPUS}")
        numbers.update(range(low, high + 1))
    return tuple(sorted(numbers))


def format_list(numbers: Iterable[int]) -> str:
    """(0, 1, 2, 8) -> `0-2,8`; the inverse of `parse_list`."""
    parts: list[str] = []
    ordered = sorted(set(numbers))
    start = 0
    for i, number in enumerate(ordered):
        if i + 1 == len(ordered) or ordered[i + 1] != number + 1:
            low = ordered[start]
            parts.append(f"{low}-{number}" if number > low else str(low))
            start = i + 1
    return ",".join(parts)


def parse_mask(text: str) -> tuple[int, ...]:
    """Bits of a mask of 32-bit words, most significant first: `000000ff,ffff0000`.

    Words may carry `0x` and may be empty (hwloc writes runs of zero words so).
    Raises ValueError for anything else.
    """
    value = 0
    words = text.strip().split(",")
    if len(words) > MAX_CPUS // 32:
        raise ValueError(f"a mask of {len(words)} words is longer than any machine")
    if words[0].startswith("0xf...f"):  # hwloc's way to write "all of them"
        raise ValueError(f"'{text}' is an endless mask")
    for word in words:
        digits = word.strip().removeprefix("0x")
        if len(digits) > 8 or any(c not in "0123456789abcdefABCDEF" for c in digits):
            raise ValueError(f"'{text}' is not a mask of hexadecimal words")
        value = value << 32 | (int(digits, 16) if digits else 0)
    return tuple(i for i in range(value.bit_length()) if value >> i & 1)


def natural(text: str) -> int | None:
    """A number of plain digits as an int; None for anything else, or for absurd lengths."""
    return int(text) if _is_number(text) and len(text) <= 15 else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
