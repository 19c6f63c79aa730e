"""Plain tables on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.table import Table


def plain(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = False
) -> Table:
    """A table without lines; a long cell is folded. `numbers`: all but the first column are."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for at, heading in enumerate(headings):
        justify: Literal["left", "right"] = "right" if at and numbers else "left"
        table.add_column(heading, justify=justify, no_wrap=not at, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def show(table: Table, width: int = 120) -> None:
    """Print it, never so narrow (characters) that it cannot be read."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    console.width = max(console.width, width)
    console.print(table, markup=False)
