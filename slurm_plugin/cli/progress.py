"""A bar with the time left, on standard error where that is a terminal; else nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta


@contextmanager
def bar(name: str, before: float = 0.0) -> Iterator[Callable[[float], None]]:
    """Gives a function to be called with the share that is done, from 0 to 1.

    `before`: the share that an earlier run did. The time left is reckoned by the speed since then.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        Task,
        TaskProgressColumn,
        TextColumn,
    )
    from rich.text import Text

    began = time.monotonic()

    class TimeLeft(ProgressColumn):
        """Seconds until the end, counted down between two reports."""

        def render(self, task: Task) -> Text:
            ends: float | None = task.fields["ends"]
            if ends is None:
                return Text("")
            return Text(f"{timedelta(seconds=max(0, round(ends - time.monotonic())))} left")

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeLeft())
    with Progress(
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
        redirect_stdout=sys.stdout.isatty(),
    ) as shown:
        task = shown.add_task(name, total=1.0, ends=None)
        shown.update(task, completed=before)

        def report(share: float) -> None:
            now, done = time.monotonic(), share - before
            ends = now + (now - began) * (1 - share) / done if done > 0 else None
            shown.update(task, completed=share, ends=ends)

        yield report


@contextmanager
def watching(name: str) -> Iterator[None]:
    """A bar for the loops of the simulation."""
    from simulation.core.steps import watched

    with bar(name) as report, watched(report):
        yield
