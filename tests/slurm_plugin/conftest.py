"""The folder's helpers lie beside its tests."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# importlib mode adds no path of its own.
sys.path.insert(0, str(Path(__file__).parent))
# machines.py, the machines of the policies' tests.
sys.path.append(str(Path(__file__).parents[1] / "policies"))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[object]:
    """One of the basic configuration."""
    from engine_in_tests import an_engine

    found = an_engine(tmp_path)
    yield found
    found.log.close()


@pytest.fixture
def bench(tmp_path: Path) -> object:
    """A script to profile, and a Slurm that is played."""
    from profiling_in_tests import Bench, trains

    return Bench(tmp_path, trains)
