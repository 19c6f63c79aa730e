"""Jobs' records in Slurm's own structures: what is left of a selection that cons_tres broke off."""

import re
from pathlib import Path

import pytest

from slurm_cluster.cluster import cluster_sh

pytestmark = [pytest.mark.cluster, pytest.mark.select_plugin]
SOURCES = sorted((Path(__file__).parents[2] / "select").glob("records_*.c"))
CLAIMS = [
    claim for file in SOURCES for claim in re.findall(r"^CLAIM\((\w+)\)", file.read_text(), re.M)
]


@pytest.fixture(scope="module")
def said() -> list[str]:
    """What records_test prints, built against the source of the trixie image's Slurm."""
    make = "make -C slurm_plugin/select OUT=/tmp/records check-records"
    done = cluster_sh("builder", *make.split())
    return (done.stdout + done.stderr).splitlines()


@pytest.mark.parametrize("claim", CLAIMS)
def test_claim(live, said, claim):
    assert f"ok {claim}" in said, "\n".join(said[-20:])
