"""The packing benchmark: its mix, its blocks, and who wins in the simulator."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from bench.live.large.packing import DRIVER, PackingNodes, backfill, records, schedule
from bench.simulated import packing
from gres_topology.slurm_files import topology_conf
from policies import Placement
from simulation.core.jobs import SimJob, offered_load
from simulation.core.record import Record, SimulatedRun

NAMES = packing.node_names()


def test_a_mix_offers_its_load_and_has_jobs_of_every_kind() -> None:
    jobs = packing.mix(1, 500, 0.85, 600.0)
    assert offered_load(jobs, 576) == pytest.approx(0.85, abs=0.001)
    kinds = Counter(map(packing.class_of, jobs))
    assert min(kinds.values()) > 20
    assert max(len(job.gpus_per_node) for job in jobs) <= 18
    assert all(job.walltime_s >= job.duration_s for job in jobs)
    assert jobs != packing.mix(2, 500, 0.85, 600.0)


def test_there_are_four_blocks_of_eighteen_nodes() -> None:
    blocks = topology_conf.parse(packing.topology_conf(NAMES), "test")
    assert [len(domain.nodes) for domain in blocks.domains] == [18] * 4


def test_figures_by_hand() -> None:
    """One node runs for 10 of 20 s: two jobs submitted late enough to count, one had to wait."""

    def record(number: int, submit_s: float, start_s: float, nodes: list[str]) -> Record:
        job = SimJob(number, (8,) * len(nodes), 10.0, submit_s)
        placement = Placement(dict.fromkeys(nodes, tuple(range(8))), "test", "")
        return Record(job, start_s, start_s + 10, placement)

    runs = [record(1, 0, 0, [NAMES[0]]), record(2, 10, 13, [NAMES[1]])]
    runs += [record(3, 20, 20, NAMES[17:19]), record(4, 20, 20, NAMES[20:22])]
    found = packing.judged(SimulatedRun("mapa", runs, gpus=576), NAMES, 10.0)
    assert found.at_once == {"small": [], "whole": [False], "several": [True, True]}
    assert found.one_block == [False, True]
    assert found.wait_s == 1.0
    assert found.stranded == 0
    # 71 nodes are free up to 10 s and from 13 s on, 72 in between.
    assert found.largest == pytest.approx(8 * (71 * 13 + 72 * 3) / 16, rel=1e-3)


def test_in_the_simulator_ours_strands_less_than_stock_and_keeps_jobs_in_one_block() -> None:
    jobs = packing.mix(1, 400, 0.85, 600.0)
    runs = {
        side: [packing.judged(packing.simulated(side, jobs), NAMES, 600.0)]
        for side in packing.SIDES
    }
    told = {figure.name: figure for figure in packing.figures("p", 0.85, runs)}
    for name in ("p.85.stranded", "p.85.one_block", "p.85.bandwidth"):
        assert told[name].ok, told[name].line()
    swapped = {"mapa": runs["stock"], "stock": runs["mapa"]}
    again = {figure.name: figure for figure in packing.figures("p", 0.85, swapped)}
    assert not again["p.85.stranded"].ok


def test_backfill_as_slurm_has_it_by_default_keeps_nodes_for_all_that_wait(monkeypatch) -> None:
    """Fewer small jobs start at once than with EASY backfill, which keeps nodes for the first."""
    jobs = packing.mix(1, 400, 0.95, 600.0)
    easy = packing.judged(packing.simulated("mapa", jobs), NAMES, 600.0)
    monkeypatch.setenv("PACKING_BACKFILL", "slurm")
    slurm = packing.judged(packing.simulated("mapa", jobs), NAMES, 600.0)
    assert sum(slurm.at_once["small"]) < sum(easy.at_once["small"])
    assert slurm.bandwidth_share == 1.0


def test_both_sides_of_the_live_run_are_asked_for_the_same_at_the_same_moment() -> None:
    lines = schedule([packing.mix(seed, 200, 0.7, 30.0) for seed in (3, 4)], "run").splitlines()
    for pair in "12":
        ours = [line for line in lines if f'"packed{pair}"' in line]
        stock = [line for line in lines if f'"plain{pair}"' in line]
        assert [line.replace("packed", "plain") for line in ours] == stock
        assert len(ours) == 200
    times = [json.loads(line)["at_s"] for line in lines]
    assert times == sorted(times)


def test_each_pair_and_side_has_nodes_of_its_own() -> None:
    nodes = PackingNodes(4 * packing.NODES)
    assert nodes.pairs == 2
    found = [nodes.of(side, pair) for pair in (0, 1) for side in ("mapa", "stock")]
    assert len({name for names in found for name in names}) == 4 * packing.NODES
    conf = nodes.slurm_conf()
    assert f"PartitionName=plain2 Nodes={','.join(nodes.of('stock', 1))} " in conf
    assert "Gres=gpu:h100:8" in conf
    blocks = topology_conf.parse(nodes.network, "test").domains
    assert {name for block in blocks for name in block.nodes} == {*found[0], *found[2]}


def test_accounting_becomes_records_of_one_side() -> None:
    jobs = [SimJob(1, (4,), 5.0, 0.3), SimJob(2, (8, 8), 5.0, 1.2)]
    row = {"JobName": "r-1", "Partition": "packed", "Submit": "100", "Start": "102", "End": "107"}
    two = {"JobName": "r-2", "Submit": "101", "Start": "101", "NodeList": "many[001-002]"}
    rows = [row | {"NodeList": "many003"}, row | two, row | {"Partition": "plain"}]
    found = records(rows, jobs, "packed")
    assert [one.waited_s for one in found] == [2, 0]
    assert dict(found[1].placement.gpus) == dict.fromkeys(("many001", "many002"), tuple(range(8)))
    with pytest.raises(RuntimeError, match="expected 2 nodes"):
        records([row | two | {"NodeList": "many001"}], jobs, "packed")


def test_the_driver_ends_each_job_after_its_time_and_fails_with_a_submit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = tmp_path / "ended"
    (tmp_path / "scancel").write_text(f'#!/bin/sh\necho "$@" >>{ended}\n')
    (tmp_path / "scancel").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def run(*commands: tuple[str, float]) -> subprocess.CompletedProcess[str]:
        lines = [
            json.dumps({"at_s": 0.1, "hold_s": hold_s, "command": ["sh", "-c", command]})
            for command, hold_s in commands
        ]
        (tmp_path / "schedule").write_text("\n".join(lines))
        command = [sys.executable, str(DRIVER), str(tmp_path / "schedule")]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    grant = "echo salloc: Granted job allocation {} >&2"
    waits = f"until [ -e {ended} ]; do sleep 0.05; done; {grant.format(8)}"
    # The second one waits for the end of the first.
    done = run((grant.format(7), 0.2), (waits, 60.0))
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) >= 0
    assert ended.read_text() == "-Q 7\n"
    assert (
        "a submit failed: no such partition" in run(("echo no such partition >&2; false", 1)).stderr
    )


def test_backfill_keeps_nodes_for_the_first_that_waits_or_as_slurm_does(monkeypatch):
    """slurm.conf's later line counts."""
    nodes = PackingNodes(more_conf=backfill())
    assert nodes.slurm_conf().endswith(",bf_interval=2,bf_job_part_count_reserve=1\n")
    monkeypatch.setenv("PACKING_RESERVE", "0")
    assert backfill().endswith(",bf_interval=2\n")
