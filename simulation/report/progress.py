"""Progress bars on stderr, where that is a terminal and a run is long enough to want one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Runs of fewer jobs are over before a bar is read.
LONG = 1000


@contextmanager
def bars() -> Iterator[Callable[[str, int], Callable[[int], None]]]:
    """Gives a function that begins a bar (name, jobs in all).

    What that returns is to be called with the number of jobs done so far.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as shown:

        def begin(name: str, jobs: int) -> Callable[[int], None]:
            if jobs < LONG:
                return lambda done: None
            task = shown.add_task(name, total=jobs)
            return lambda done: shown.update(task, completed=done)

        yield begin
