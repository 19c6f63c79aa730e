"""horizon-waits: what is told to whom, and that waiting shortens waits."""

from papers.experiments import experiments
from papers.experiments.horizon_waits import POLICIES, drawn


def test_jobs_wait_less_and_run_faster_where_they_say_what_they_communicate():
    """The first seeds that no rule was chosen with; docs/policies/horizon.md has all."""
    found = experiments["horizon-waits"].run([1000, 1001], machine="mi250x", load="95").measured
    assert found.keys() == POLICIES.keys()
    told, others = found["horizon"], (found["mapa"], found["horizon-at-once"], found["best-fit"])
    assert told["postponed"] > 0 == found["horizon-at-once"]["postponed"]
    for figure in ("mean_wait_s", "submit_to_end_s", "slower"):
        assert told[figure] < min(one[figure] for one in others)


def test_single_gpus_communicate_with_nobody():
    jobs = drawn(3, "dgx1v", "hours", 0.85)
    assert all(bool(job.hint) == (job.gpus_per_node != (1,)) for job in jobs)
    assert all(2 * job.duration_s <= job.walltime_s <= 4 * job.duration_s for job in jobs)


def test_a_part_that_is_switched_off_is_off():
    """The rows differ, and those without a part are where it had an effect."""
    found = experiments["horizon-parts"].run([2000], machine="dgx1v").measured
    assert found["no waiting"]["postponed"] == 0 < found["horizon"]["postponed"]
    assert found["no releases"]["postponed"] == 0, "nothing comes to wait for"
    assert found["no queue"]["pcie_hops"] != found["horizon"]["pcie_hops"]
    rows = {tuple(row.values()) for row in found.values()}
    assert len(rows) == len(found)
