"""The mixed benchmark: its nodes, its jobs, and how it judges."""

from __future__ import annotations

import subprocess
from statistics import fmean

import pytest

from bench.live.large.mixed import (
    EACH,
    MACHINES,
    MEAN_S,
    SIDES,
    Live,
    MixedNodes,
    Side,
    figures,
    jobs_of,
    sbatch,
    shares_of,
)
from papers.experiments.harm.workloads import GENERATED

NODES = MixedNodes(2 * EACH * len(SIDES))


def test_each_side_of_each_seed_has_nodes_of_both_kinds() -> None:
    assert NODES.partitions == ["plain0", "fit0", "ahead0", "plain1", "fit1", "ahead1"]
    groups = [(machine, count) for _, machine, count in NODES.alike]
    assert groups == [*MACHINES.items()] * 6
    conf = NODES.slurm_conf()
    ports = [
        line.split("Port=[")[1].split("]")[0] for line in conf.splitlines() if "Port=[" in line
    ]
    ends = [tuple(map(int, port.split("-"))) for port in ports]
    assert [first for first, _ in ends[1:]] == [last + 1 for _, last in ends[:-1]]
    assert conf.count("Gres=gpu:l40s:8") == conf.count("Gres=gpu:h100:8") == 6
    assert "ahead1: {mode: enforce, policy: horizon}" in NODES.engine_partitions
    assert 'plain0: {mode: "off"}' in NODES.engine_partitions


def test_jobs_are_the_workloads_with_all_times_scaled() -> None:
    quiet, loud = (jobs_of(GENERATED[name], 3, 200) for name in ("h100-l40s-quiet", "h100-l40s"))
    assert fmean(job.lasts_s for job in loud) == pytest.approx(MEAN_S)
    assert not any(job.communicates or job.hint for job in quiet)
    assert {job.communicates > 0 for job in loud if job.gpus > 1} == {True}
    assert not any(job.hint for job in loud)
    told = jobs_of(GENERATED["h100-l40s-told"], 3, 200)
    assert all(job.hint for job in told if job.gpus > 1)


def test_a_job_sleeps_longer_on_poorer_gpus(tmp_path) -> None:
    """A quarter of the bandwidth: three times what it communicates on top."""
    (tmp_path / "n1").write_text("0,1 0.2500\n0,3 1.0000\n")
    job = Live(7, 2, 0.0, 10.0, 0.5, 1, "communication=0.5")
    *words, script = sbatch(job, "plain0", "run", str(tmp_path))
    assert "--comment=gpu-topo: communication=0.5" in words
    script = script.replace("exec sleep", "echo")
    for gpus, lasts in (("0,1", 25.0), ("0,3", 10.0), ("2", 10.0)):
        env = {"SLURM_JOB_GPUS": gpus, "SLURMD_NODENAME": "n1", "PATH": "/usr/bin:/bin"}
        done = subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True)
        assert float(done.stdout) == lasts
    assert (tmp_path / "plain0").read_text() == "7 0.2500\n7 1.0000\n7 1\n"


def test_every_set_of_several_gpus_has_its_share() -> None:
    lines = dict(line.split() for line in shares_of("l40s-8").splitlines())
    assert len(lines) == 2**8 - 9
    assert max(map(float, lines.values())) == 1.0


@pytest.mark.parametrize(("ours_s", "is_ok"), [((20.4, 30.2), True), ((20.0, 39.0), False)])
def test_the_upper_end_of_the_interval_is_judged(ours_s, is_ok) -> None:
    stock = (20.0, 30.0)
    runs = [
        {
            side: Side(wait_s, 9.0, 1.0)
            for side, wait_s in (("horizon", mine), ("stock", its), ("best-fit", its))
        }
        for mine, its in zip(ours_s, stock, strict=True)
    ]
    found = {figure.name: figure for figure in figures(runs, {})}
    assert found["mixed_live.stock.wait_s"].ok == is_ok
    assert found["mixed_live.best-fit.wait_s"].detail["ours_s"] == round(fmean(ours_s), 2)
