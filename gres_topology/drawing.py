"""`figure` begins every chart of the project that matplotlib makes (extra `plot`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gres_topology.errors import TopologyError


@contextmanager
def figure(
    width: float, height: float, *, is_constrained: bool = False, font_size: float = 10
) -> Iterator[Any]:
    """An empty figure, in inches and points, on no screen; names in its SVG are always the same.

    TopologyError without matplotlib.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise TopologyError("drawing needs the extra: pip install 'slurm-gputopo[plot]'") from None
    with matplotlib.rc_context({"svg.hashsalt": "gputopo", "font.size": font_size}):
        yield Figure(figsize=(width, height), layout="constrained" if is_constrained else None)
