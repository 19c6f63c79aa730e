"""From cells to a NodeTopology: what every reader shares.

A reader collects cells with the line each was read from; `Cells` refuses what is not a
link, what is missing and what is asymmetric, with one line that names file, line and cell.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gres_topology import links
from gres_topology.errors import TopologyError
from gres_topology.links import LinkRates
from gres_topology.topology import SELF

Kinds = tuple[tuple[str, ...], ...]


class Cells:
    """Labels between named devices, each with its line number."""

    def __init__(self, source: str, expected: str = links.EXPECTED) -> None:
        self._source = source
        self._expected = expected
        self._cells: dict[tuple[str, str], tuple[str, int]] = {}

    def put(self, row: str, column: str, text: str, line: int) -> None:
        """Record one cell; TopologyError if it is no link or X off the diagonal."""
        label = links.canonical(text)
        if label is None:
            what = f"'{text}' is not a link; expected {self._expected}"
            raise self.error(line, row, column, what)
        if (label == SELF) != (row == column):
            wanted = "X on the diagonal" if row == column else "X on the diagonal only"
            raise self.error(line, row, column, f"is '{text}'; expected {wanted}")
        self._cells[row, column] = (label, line)

    def label(self, row: str, column: str) -> str:
        """The label of a cell that was put."""
        return self._cells[row, column][0]

    def check_symmetric(self, rows: Sequence[str], columns: Sequence[str]) -> None:
        """TopologyError naming the first pair that reads differently the other way."""
        for a in rows:
            for b in columns:
                here, there = self._cells.get((a, b)), self._cells.get((b, a))
                if here and there and here[0] != there[0]:
                    raise self.error(
                        here[1],
                        a,
                        b,
                        f"is {here[0]} but cell {b}-{a} in line {there[1]} is {there[0]};"
                        " expected a symmetric matrix",
                    )

    def kinds(self, names: Sequence[str]) -> Kinds:
        """The square matrix over `names`; every cell must have been put."""
        return tuple(tuple(self.label(a, b) for b in names) for a in names)

    def error(self, line: int, row: str, column: str, what: str) -> TopologyError:
        """One line: file, line, cell, what was read and expected."""
        return TopologyError(f"{self._source} line {line}, cell {row}-{column}: {what}")


def bandwidths(kinds: Kinds, rates: LinkRates) -> NDArray[np.float64]:
    """GB/s per direction for a matrix of labels, shape (gpus, gpus), zero diagonal."""
    n = len(kinds)
    matrix = np.zeros((n, n), dtype=np.float64)
    for i in range(n):
        for j in range(n):
            matrix[i, j] = rates.gbps(kinds[i][j])
    return matrix
