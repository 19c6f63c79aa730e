import pytest
from passing_in_tests import FIRST, HOLDS, Site, job

from slurm_plugin.serve import setup


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Site:
    """The first in line waits, and a short job."""
    slurm = Site()
    slurm.jobs_there = [HOLDS, FIRST, job(3)]
    monkeypatch.setattr(setup.choose, "client", lambda _: slurm)
    return slurm
