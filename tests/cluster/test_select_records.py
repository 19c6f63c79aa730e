"""Jobs' records in Slurm's own structures: what is left of a selection that cons_tres broke off."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from cluster import CLUSTER_SH, ROOT, Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.select_plugin]
CLAIMS = re.findall(
    r"^\tCLAIM\((\w+)\)", Path(ROOT, "tests/select/records_test.c").read_text(), re.M
)


@pytest.fixture(scope="module")
def said() -> list[str]:
    """What records_test prints, built against the source of the trixie image's Slurm."""
    make = "make -C slurm_plugin/select OUT=/tmp/records check-records"
    command = [CLUSTER_SH, "builder", *make.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).splitlines()


@pytest.mark.parametrize("claim", CLAIMS)
def test_claim(live: Cluster, said: list[str], claim: str) -> None:
    """Each claim of records_test.c holds."""
    assert f"ok {claim}" in said, "\n".join(said[-20:])
