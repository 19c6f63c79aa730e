"""docs/steps.md, the first step: as any user, with nothing of ours in Slurm and no gputopo.yaml."""

import json
import re
from pathlib import Path

import pytest

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until

pytestmark = [pytest.mark.cluster]

PAGE = Path(__file__).parents[3] / "docs" / "steps.md"
#: No gputopo.yaml is read, and no engine asked.
BARE = {"GPUTOPO_CONFIG": "/nowhere/gputopo.yaml"}
#: GRES types of machines whose links differ by pair, or that are not the only ones with them.
KINDS = {"v100": "dgx1v", "p100": "minsky", "a100": "a100-pcie-bridged", "mi250x": "mi250x"}
MACHINE = [word for kind, name in KINDS.items() for word in ("--machine", f"{kind}={name}")]


@pytest.fixture
def stock(cluster: Cluster):
    cluster.switch("stock")
    yield cluster
    cluster.switch("stock")


def as_alice(cluster: Cluster, *words: str) -> str:
    return cluster.run("ctl", list(words), user="alice", env=BARE).out


def test_audit_says_what_slurm_says(stock):
    """GPUs, free ones, jobs that wait and jobs of the past, beside Slurm's own commands."""
    done = stock.sbatch("--gres=gpu:2")
    until(lambda: str(done) in finished(stock), "accounting has the job")
    busy = stock.sbatch("-w", "dgx1", "--gres=gpu:8", user="bob", sleep_s=300)
    until(lambda: stock.job(busy).state == "RUNNING", "the job runs")
    waits = stock.sbatch("-w", "dgx1", "--gres=gpu:4")
    until(lambda: stock.job(waits).reason == "Resources", "Slurm has looked at the job")
    told = json.loads(as_alice(stock, "gputopo", "audit", "--days", "1", "--json", *MACHINE))
    now = told["now"]
    total = sum(stock.gpus.values())
    assert (now["gpus"], now["free"], now["running"]) == (total, total - 8, 1)
    assert (now["waiting"], sum(now["causes"].values())) == (1, 1)
    assert told["gpus"] == total
    # Jobs of other tests may have hints that no policy here reads, or slices.
    left = len(told["rejected"]) + told["left_out"].get("jobs on slices of GPUs", 0)
    assert told["jobs"] + left == len(finished(stock))
    assert not any("fields" in row["reason"] for row in told["rejected"])
    assert set(told["policies"]) == {"stock", "horizon"}
    assert any("a100-pcie-bridged, as you say" in line for line in told["said"])


def finished(cluster: Cluster) -> list[str]:
    """The jobs with GPUs that are over, of the last day, as alice sees them; ids may come again."""
    words = "sacct -a -X -n -P -S now-1days -E now -o JobID,State,Start,End,AllocTRES"
    rows = (line.split("|") for line in as_alice(cluster, *words.split()).splitlines())
    unset = ("Unknown", "None", "")
    return [
        job
        for job, _, start, end, tres in rows
        if "gres/gpu" in tres and start not in unset and end not in unset
    ]


def test_the_commands_of_the_page_work_as_written(stock):
    """Behind the one that installs: here the package is there."""
    stock.occupy("dgx1", range(8))
    waits = stock.sbatch("-w", "dgx1", "--gres=gpu:4")
    until(lambda: stock.job(waits).reason == "Resources", "Slurm has looked at the job")
    look = PAGE.read_text().partition("\n## Look")[2].partition("```\n")[2].partition("```")[0]
    install, *commands = look.splitlines()
    assert install.startswith("python3 -m venv")
    assert [line.split()[1] for line in commands] == ["audit", "why", "try", "top"]
    as_alice(stock, "sh", "-c", "printf '#!/bin/sh\\n' >/home/alice/train.sh")
    said = {}
    for line in commands:
        words = re.sub(r"\b4711\b", str(waits), line).split()
        more = MACHINE if words[1] == "audit" else []
        said[words[1]] = as_alice(stock, "sh", "-c", f"cd ~alice && {' '.join([*words, *more])}")
    assert said["why"].startswith(f"Job {waits} waits for 4 free GPUs on dgx1")
    assert "Now: of" in said["audit"]
    assert "<h1>" in as_alice(stock, "cat", "/home/alice/audit.html")
    assert said["try"].startswith("It would start now on")
    assert "dgx1" in said["top"]
