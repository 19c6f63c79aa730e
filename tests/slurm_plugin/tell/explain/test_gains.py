"""`gputopo report`: sums that a reader can check by hand."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from commands_in_tests import refused, run
from engine_in_tests import written
from web_in_tests import played

from slurm_plugin.base.log_lines import of_plain
from slurm_plugin.config.sections import DecisionLogConfig
from slurm_plugin.decide.decision_log import DecisionLog
from slurm_plugin.queue import free_history
from slurm_plugin.queue.free_history import FreeHistory, FreeReading
from slurm_plugin.slurm import choose
from slurm_plugin.tell.explain.gains import Gains

NOW = datetime.now(UTC).isoformat()


def use(job: int, ours: float, stock: float, hops: tuple[int, int] = (0, 1), **more: Any) -> dict:
    return {
        "time": NOW, "job": job, "decision": "use", "applied": True, "partition": "gpu",
        "policy": "mapa", "pattern": "ring", "gpus_per_node": [2], "waited_s": 0,
        "chosen": {"gpus": {"n1": [3, 0]}, "effbw_gbps": ours, "pcie_hops": hops[0]},
        "slurm": {"gpus": {"n1": [0, 1]}, "effbw_gbps": stock, "pcie_hops": hops[1]}, **more,
    }  # fmt: skip


def summed(*records: dict) -> dict[str, Any]:
    gains = Gains()
    for record in records:
        gains.add(of_plain(record))
    return gains.summary()


def test_ratios_and_quartiles_are_of_the_jobs_not_of_the_questions():
    told = summed(use(1, 40, 10), use(1, 40, 20), use(2, 30, 10), use(3, 10, 10))["placed"]
    assert told["jobs"] == 3
    assert told["ratio_mean"] == pytest.approx(2.0)
    assert told["ratio_quartiles"] == pytest.approx([1.5, 2.0, 2.5])
    assert told["chosen_gbps_mean"] == pytest.approx(80 / 3)
    assert told["ratio_interval"] is None
    assert (told["ratio_more"], told["ratio_less"]) == (2, 0)


def test_the_mean_of_many_jobs_has_an_interval():
    told = summed(*(use(job, 30 + job % 2 * 10, 10) for job in range(1, 41)))["placed"]
    low, high = told["ratio_interval"]
    assert (low + high) / 2 == pytest.approx(3.5)
    # s = 0.506 of forty jobs, half of them at 3 and half at 4
    assert high - low == pytest.approx(2 * 1.96 * 0.5064 / 40**0.5, rel=1e-3)


def test_rings_without_pcie_are_counted_for_both():
    told = summed(use(1, 1, 1, (0, 2)), use(2, 1, 1, (1, 0)), use(3, 1, 1, (0, 0)))["placed"]
    keys = ("rings", "rings_without_pcie", "rings_without_pcie_slurm")
    assert [told[key] for key in keys] == [3, 2, 2]


def test_a_single_gpu_and_another_pattern_are_no_ring():
    one = use(1, 0, 0, gpus_per_node=[1])
    tree = use(2, 4, 2, pattern="tree")
    told = summed(one, tree)["placed"]
    assert (told["jobs"], told["compared"], told["rings"]) == (2, 1, 0)


def test_a_job_that_started_on_other_gpus_gained_nothing():
    start = {"job": 1, "decision": "started", "gpus": {"n1": [4, 5]}}
    told = summed(use(1, 40, 10), start, use(2, 20, 10))["placed"]
    assert (told["jobs"], told["started_otherwise"], told["ratio_mean"]) == (2, 1, 2.0)
    same = {"job": 1, "decision": "started", "gpus": {"n1": [0, 3]}}
    assert summed(use(1, 40, 10), same)["placed"]["started_otherwise"] == 0


def test_observed_jobs_are_apart_and_waits_and_passes_counted_by_reason():
    told = summed(
        use(1, 40, 10, applied=False),
        {"job": 2, "decision": "wait"},
        {"job": 2, "decision": "wait"},
        use(2, 20, 10, waited_s=60),
        {"job": 3, "decision": "pass", "why": "opted out by hint"},
    )
    assert (told["placed"]["jobs"], told["observed"]["jobs"]) == (1, 1)
    assert told["postponements"] == {"times": 2, "jobs": 1, "waited_s_mean": 60.0}
    assert told["passes"] == {"opted out by hint": 1}
    assert told["by_partition"]["gpu"]["jobs"] == 1
    assert set(told["by_policy"]) == {"mapa"}


def test_a_start_that_no_decision_precedes_is_a_fail_open():
    alone = {"job": 9, "decision": "started", "gpus": {"n1": [0]}}
    passed = {"job": 8, "decision": "pass", "why": "x"}
    cpus = {"job": 7, "decision": "started", "gpus": {}}
    told = summed(alone, passed, {**alone, "job": 8}, cpus)
    assert told["started_undecided"] == 1


def test_lines_of_an_older_release_do_not_stop_the_report():
    old = use(1, 40, 10)
    del old["chosen"]["pcie_hops"], old["slurm"]["pcie_hops"], old["waited_s"]
    assert summed(old)["placed"]["rings"] == 0


@pytest.fixture
def site(tmp_path: Path) -> Path:
    log = DecisionLog(DecisionLogConfig(tmp_path / "decisions.jsonl", 1, 1))
    log.append(of_plain(use(1, 40, 10, time=(datetime.now(UTC) - timedelta(hours=3)).isoformat())))
    log.append(of_plain(use(2, 20, 10)))
    log.close()
    return written(tmp_path)


@pytest.mark.parametrize(
    ("since", "jobs"), [(None, 2), ("2h", 1), ("4h", 2), ("1w", 2), ("2020-01-01", 2)]
)
def test_since_leaves_out_what_is_older(site, since, jobs):
    words = ("--since", since) if since else ()
    told = json.loads(run("report", "--config", str(site), "--json", *words))
    assert told["placed"]["jobs"] == jobs


def test_the_report_in_words(site):
    said = run("report", "--config", str(site))
    assert "placed: 2 jobs" in said
    more = "2 got more, 0 less, the others as much; quartiles 2.50 3.00 3.50"
    assert f"3.00 times as much on average; {more}" in said
    assert "rings without a PCIe hop: 2 of 2, stock 0" in said


def test_the_report_ends_with_what_of_the_free_gpus_is_of_use_now(site, monkeypatch):
    """Jobs of 2, 5, 8 and 8 GPUs; on the nodes 6 and 3 are free. (6 x 2/4 + 3 x 3/4) / 9."""
    slurm = played()
    monkeypatch.setattr(choose, "client", lambda settings: slurm)
    last = run("report", "--config", str(site)).splitlines()[-1]
    assert last == (
        "now: 9 of 16 GPUs are free, 9 stranded; fragmentation 58 %; the largest job that could"
        " start has 1 x 6 GPUs"
    )
    now = json.loads(run("report", "--config", str(site), "--json"))["now"]
    assert now == {
        "gpus": 16, "free": 9, "stranded": 9, "fragmentation": 0.5833, "largest": [1, 6]
    }  # fmt: skip
    slurm.problem = "slurmctld is down"
    last = run("report", "--config", str(site)).splitlines()[-1]
    assert last == "now: not known (slurmctld is down)"


DAY_S = 86_400


def test_the_report_tells_of_the_free_gpus_over_time(site, tmp_path):
    """One reading of old, three lately, of which `--since` leaves the last two."""
    now = datetime.now(UTC).timestamp()
    readings = [(90 * DAY_S, 16, 16), (5000, 8, 2), (1000, 4, 1), (10, 0, 0)]
    rows = [
        FreeReading(now - ago_s, 16, 12, stranded, 0.5, nodes, 4)
        for ago_s, stranded, nodes in readings
    ]
    history = FreeHistory(DecisionLogConfig(tmp_path / "decisions.jsonl"))
    for row in rows:
        history.add(row)
    told = json.loads(run("report", "--config", str(site), "--json", "--since", "1h"))
    assert told["over_time"] == {
        "readings": 2, "free_mean": 0.75, "stranded_mean": 0.125, "stranded_most": 0.25,
        "fragmentation_mean": 0.5, "largest_median": 2, "largest_lowest_tenth": 0,
    }  # fmt: skip
    said = run("report", "--config", str(site))
    assert "free GPUs in 4 readings: 43.8 % of the GPUs stranded (at most 100.0 %)" in said
    assert "largest job that could start 6 GPUs (in nine of ten readings 0)" in said
    old = datetime.fromtimestamp(rows[0].at).date().isoformat()
    assert f"  {old}: 100.0 % of the GPUs stranded" in said


def test_a_report_without_readings_says_nothing_of_them(site):
    assert "readings" not in run("report", "--config", str(site))
    told = json.loads(run("report", "--config", str(site), "--json"))
    assert told["over_time"] == {"readings": 0}


def test_old_readings_go_when_there_are_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr(free_history, "MOST_ROWS", 3)
    log = DecisionLogConfig(path=tmp_path / "decisions.jsonl")
    for at in range(4):
        FreeHistory(log).add(FreeReading(at, 8, 8, 0, 0.0, 1, 8))
    assert [row.at for row in FreeHistory(log).since(None)] == [1, 2, 3]
    (tmp_path / "decisions.free.json").write_text("[[1,")
    assert FreeHistory(log).since(None) == []


@pytest.mark.parametrize("since", ["yesterday", "h", "9999999999999d", "0001-01-01", ""])
def test_a_bad_since_is_one_clear_line(site, since):
    words = ("report", "--config", str(site), "--since", since or "x")
    assert "expected 90m, 2h" in refused(*words)
