"""An engine of the basic configuration in a folder, and its file there."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from machines_in_tests import BASIC

from slurm_plugin.decide.decision_log import DecisionLog
from slurm_plugin.serve import setup
from slurm_plugin.serve.service import Engine


def written(folder: Path, text: str = BASIC) -> Path:
    path = folder / "gputopo.yaml"
    path.write_text(text.format(folder=folder))
    return path


def an_engine(folder: Path, text: str = BASIC, *cache: object) -> Engine:
    first = setup.load(written(folder, text), *cache)
    return Engine(first, DecisionLog(first.config.decision_log), setup.load)


@contextmanager
def served(listener: Any) -> Iterator[None]:
    """What listens is served from a thread for as long as this lasts."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(listener.start(), loop).result(10)
        yield
    finally:
        asyncio.run_coroutine_threadsafe(listener.stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
