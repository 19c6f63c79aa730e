"""`order: predicted` live: short work passes the first in line, within the bound, and no more."""

import time
from collections.abc import Iterator

import pytest
from live_harness import IN_BOTH_MODES, at_home, explained
from modes import enforcement

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until

pytestmark = [*IN_BOTH_MODES, pytest.mark.enforced]

#: One more of the partitions, which stand last in the file.
ORDERED = "  dgx: {mode: enforce, order: predicted}"


ordered_site = at_home(yaml=ORDERED)


def submit(cluster: Cluster, gpus: int, minutes: int, *args: str) -> int:
    limit = f"--time={minutes}"
    return cluster.sbatch("-p", "dgx", f"--gres=gpu:{gpus}", limit, *args, sleep_s=3000)


def state(cluster: Cluster, job: int) -> str:
    return next((one.state for one in cluster.jobs() if one.id == job), "gone")


def a_full_partition(cluster: Cluster) -> tuple[int, int]:
    """One GPU of each node is free, and the first in line wants all; backfill has no hole."""
    holds = cluster.wait_running(submit(cluster, 7, 5, "-N2")).id
    first = submit(cluster, 8, 60, "-N2")
    until(lambda: state(cluster, first) == "PENDING", "the first in line waits")
    cluster.wait_reconciled()  # with slots jobs start at once where nobody is known to wait
    return holds, first


def seen_twice(cluster: Cluster) -> None:
    """The order's loop has read the queue since."""
    time.sleep(12)  # two of its polls: nothing tells of a look that changes nothing


def priorities(cluster: Cluster) -> dict[int, str]:
    return {one.id: one.fields["Priority"] for one in cluster.jobs() if one.state == "PENDING"}


@pytest.mark.long("waits until polls would have come")
def test_where_the_site_does_not_ask_for_it_the_order_is_slurms(cluster: Cluster):
    _, first = a_full_partition(cluster)
    short = submit(cluster, 1, 10)
    before = priorities(cluster)
    seen_twice(cluster)

    assert {first, short} == before.keys()
    assert priorities(cluster) == before
    assert "order" not in cluster.status()


@pytest.mark.usefixtures("ordered_site")
def test_a_short_job_passes_and_a_due_job_is_passed_by_nobody(cluster: Cluster):
    holds, first = a_full_partition(cluster)
    longer = submit(cluster, 1, 11)
    # Longer than what the first waits for: backfill alone would not start it.
    short = submit(cluster, 1, 7)

    cluster.wait_running(short)
    assert state(cluster, first) == state(cluster, longer) == "PENDING"
    assert cluster.status()["order"]["passed"] == {"dgx": 1}
    assert f"passed job {first}" in explained(cluster, short)["order"]
    # Now the short job alone holds the first in line up: what may take longer waits.
    cluster.cancel(holds)
    cluster.wait_finished(holds)
    kept = "what it took is learned"
    until(lambda: cluster.status()["order"]["predicted"]["kept"] > 0, kept)
    # Of jobs before it something was learned already.
    seen_twice(cluster)
    late = submit(cluster, 1, 10)
    seen_twice(cluster)
    assert state(cluster, late) == state(cluster, longer) == "PENDING"
    cluster.cancel(short)
    cluster.wait_running(first)


#: Slurm 23.02 to 24.11 counts the tasks of these anew in every update that names no number.
COUNTED = (
    ("-N1", "--gpus=2", "--ntasks-per-gpu=2"),
    ("-N1", "-n3", "--ntasks-per-node=4", "--gres=gpu:2"),
    ("-N2", "-n3", "--ntasks-per-node=2", "--gpus-per-node=1"),
)


@pytest.mark.usefixtures("ordered_site")
@pytest.mark.parametrize("form", COUNTED, ids=" ".join)
def test_a_job_that_passes_has_the_tasks_that_it_has_with_stock_slurm(cluster: Cluster, form):
    """It waits, its place is changed, in the slots mode its request, and then it runs."""
    stock = cluster.sbatch("-p", "off", "--hold", *form)
    tasks = cluster.job(stock).fields["NumTasks"]
    cluster.cancel(stock)
    before = cluster.status()["order"]["passed"].get("dgx", 0)
    cluster.wait_running(submit(cluster, 6, 5, "-N2"))
    first = submit(cluster, 8, 60, "-N2")
    until(lambda: state(cluster, first) == "PENDING", "the first in line waits")
    cluster.wait_reconciled()  # as in a_full_partition
    # Longer than what the first waits for: backfill alone would not start it.
    job = cluster.wait_finished(cluster.sbatch("-p", "dgx", "--time=7", *form))
    assert (job.state, job.fields["NumTasks"]) == ("COMPLETED", tasks)
    assert cluster.status()["order"]["passed"] == {"dgx": before + 1}


def is_let_go(cluster: Cluster, job: int, first: int) -> bool:
    """Has Slurm the job before the first in line, and does nothing of ours keep it from its start?

    The engine's log tells of it before Slurm is told.
    """
    found = priorities(cluster)
    is_before = int(found.get(job, 0)) > int(found[first])
    is_placed = "[gpu-slots: placed " in cluster.job(job).admin_comment
    return is_before and (is_placed or enforcement() == "select")


@pytest.fixture
def a_minute_more(cluster: Cluster) -> Iterator[None]:
    """Slurm ends jobs a minute too late. The engine goes by what it read for up to a minute."""
    cluster.configure_extra("OverTimeLimit=1")
    cluster.engine("restart")
    cluster.wait_reconciled()
    try:
        yield
    finally:
        cluster.configure_extra("")
        cluster.engine("restart")


@pytest.mark.usefixtures("ordered_site", "a_minute_more")
def test_a_limit_that_is_raised_while_the_job_passes_is_set_back_once_it_runs(cluster: Cluster):
    """Else the owner would hold up the first in line for as long as she likes.

    A limit is here when Slurm ends the job.
    """
    # A core of each socket; those that would pass ask for all beside their GPU: they do not begin.
    cores = ("-p", "off", "-w", "dgx1", "-n2", "--ntasks-per-socket=1")
    holder = cluster.started(*cores, sleep_s=3000).id
    _, first = a_full_partition(cluster)
    longer, short = (
        submit(cluster, 1, minutes, "-w", "dgx1", "-c8", "--gres-flags=enforce-binding")
        for minutes in (10, 9)
    )
    passed = f"job {short} passed job {first}, by its limit of 600 s with 60 s of OverTimeLimit"
    until(lambda: passed in cluster.engine_log() and is_let_go(cluster, short, first), "it passes")
    with cluster.temporarily("clusterctl engine pause", "clusterctl engine resume"):
        cluster.run("ctl", f"scontrol update jobid={short} timelimit=60", user="alice")
        cluster.cancel(holder)
        assert cluster.wait_running(short).fields["TimeLimit"] == "01:00:00"
    until(lambda: cluster.job(short).fields["TimeLimit"] == "00:09:00", "its limit is set back")
    assert "began with a longer one" in explained(cluster, short)["order"]
    assert state(cluster, first) == state(cluster, longer) == "PENDING"


@pytest.mark.long("an engine that is gone")
@pytest.mark.usefixtures("ordered_site")
def test_an_engine_that_dies_leaves_slurms_order(cluster: Cluster):
    _, first = a_full_partition(cluster)
    longer = submit(cluster, 1, 11)
    short = submit(cluster, 1, 10, "--requeue")
    cluster.wait_running(short)
    cluster.engine("kill")
    try:
        found = priorities(cluster)
        assert int(found[first]) >= int(found[longer])
        # What passed goes back to the queue, and has its place in front still ...
        later = "starttime=now+300"
        cluster.run("ctl", f"scontrol requeue {short} && scontrol update jobid={short} {later}")
        until(lambda: short in priorities(cluster), "the short job waits again")
        assert int(priorities(cluster)[short]) > int(found[first])
    finally:
        cluster.engine("start")
    # ... until an engine is there again.
    until(lambda: priorities(cluster).get(short) == found[longer], "it has its own place again")


@pytest.mark.long("a gate opens by itself")
@pytest.mark.usefixtures("ordered_site")
def test_without_an_engine_the_first_in_line_starts(cluster: Cluster):
    holds, first = a_full_partition(cluster)
    short = submit(cluster, 1, 10)
    cluster.wait_running(short)
    cluster.engine("kill")
    try:
        cluster.cancel(holds, short)
        # In the slots mode it waits until its gate, which nobody renews, opens by itself.
        cluster.wait_running(first, timeout_s=200)
    finally:
        cluster.engine("start")
