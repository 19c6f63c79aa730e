"""The clock of the controller's processes is set by an hour, forward and back, while jobs wait.

Single processes take their time from a file. A slurmctld whose clock was set back starts nothing
until it has caught up; restarted, as here, it starts new jobs, and those that waited once their
begin times, which are in the future now, are changed.
"""

import time

import pytest
from live_harness import IN_BOTH_MODES, Watch, advised_again, by_policy, configure_engine
from modes import enforcement
from select_harness import SWITCH, stock_pair

from slurm_cluster.cluster import Cluster
from slurm_cluster.faults import FAKED_CLOCK
from slurm_cluster.hosts import until
from slurm_cluster.slurm_text import Job, parse_indices

pytestmark = [
    *IN_BOTH_MODES,
    pytest.mark.long("a minute and more of waiting"),
    pytest.mark.timeout(900),
]

HOUR_S = 3600
LEASE_S = 60
#: An hour more and every usual limit is over.
PAIR = ("-t", "UNLIMITED", "--gres=gpu:2", "-w")
#: Waits for the best pair.
PICKY = (*PAIR, "dgx1", "--comment=gpu-topo: min-utility=0.9")
#: Waits behind its gate; where GPUs were free, the hour that is skipped would open it.
ALL = ("-t", "UNLIMITED", "-w", "dgx1", "--gres=gpu:8")
#: All but the best pair's GPUs: a pair is free, but not that one.
OTHERS = (1, 2, 3, 4, 6, 7)
both_ways = pytest.mark.parametrize("hours", [1, -1], ids=["forward", "back"])


@pytest.fixture
def site(watch: Watch, cluster: Cluster) -> Cluster:
    """Short leases, and credentials that outlive an hour."""
    cluster.configure_extra("AuthInfo=cred_expire=10000")
    cluster.reconfigure()
    configure_engine(cluster, f"slots: {{lease_s: {LEASE_S}, poll_s: 1}}")
    cluster.wait_reconciled()
    return cluster


def waits(cluster: Cluster) -> int:
    """A job that waits for GPUs which bob has."""
    bobs = ",".join(map(str, cluster.occupy("dgx1", OTHERS)))
    cluster.run("ctl", f"scontrol update jobid={bobs} TimeLimit=UNLIMITED")
    wants = ALL if enforcement() == "slots" else PICKY
    ids: list[int] = []

    def one_waits() -> bool:
        # A submit whose question came too late for a busy engine is Slurm's own: the next one.
        cluster.cancel(*ids)
        ids.append(cluster.sbatch(*wants, sleep_s=300))
        time.sleep(2)
        return is_waiting(cluster.job(ids[-1]))

    until(one_waits, lambda: f"one waits; the last: {cluster.job(ids[-1]).fields}", 60)
    return ids[-1]


def is_waiting(job: Job) -> bool:
    is_gated = "[gpu-slots: gated " in job.admin_comment
    return job.state == "PENDING" and (is_gated or job.reason == "BeginTime")


def goes_on(cluster: Cluster, jobid: int, way: str = "") -> None:
    """bob's jobs end, and it starts on the best pair."""
    cluster.run("ctl", "squeue -h -u bob -w dgx1 -o %A | xargs scancel")
    if way == "back" and enforcement() == "select":
        cluster.run("ctl", f"scontrol update jobid={jobid} StartTime=now", env=FAKED_CLOCK)
    cluster.wait_running(jobid, timeout_s=120)


def gate_holds_a_lease(cluster: Cluster, jobid: int, ahead_s: int) -> None:
    """By slurmctld's clock it is to open neither in an hour nor at once."""

    def is_a_lease() -> bool:
        left_s = cluster.time_of(jobid, "EligibleTime") - (time.time() + ahead_s)
        return 0 < left_s <= 2 * LEASE_S

    until(is_a_lease, lambda: f"the gate holds for a lease: {cluster.job(jobid).fields}", 60)


def has_told(cluster: Cluster, way: str) -> bool:
    return f"the clock was set {way} by 36" in cluster.engine_log()


@both_ways
def test_the_clock_is_set_while_a_job_waits(site, hours):
    """The engine says so, the gate holds no longer than before, and the job starts in time."""
    ways = ("forward", "back") if hours > 0 else ("back", "forward")
    with site.clock_of("slurmctld", "engine") as set_to:
        for at, way in zip((hours, 0), ways, strict=True):
            jobid = waits(site)
            set_to(at)
            until(lambda way=way: has_told(site, way), f"the engine says: {way}")
            if way == "back":
                site.restart("slurmctld", FAKED_CLOCK)
            if enforcement() == "slots":
                gate_holds_a_lease(site, jobid, at * HOUR_S)
            beside = site.started(*PAIR, "dgx2", sleep_s=300, timeout_s=60).id
            goes_on(site, jobid, way)
            site.end([jobid, beside])


@both_ways
@pytest.mark.slots
def test_a_submit_that_comes_to_nothing_keeps_gpus_for_no_hour(site, hours):
    """The GPUs were promised to it before the clock was set, and are free again soon after."""
    with site.clock_of("slurmctld", "engine") as set_to:
        site.run("ctl", "sbatch --test-only -w dgx1 --gres=gpu:8 --wrap true", user="alice")
        set_to(hours)
        site.restart("slurmctld", FAKED_CLOCK)
        site.started(*ALL, sleep_s=300, timeout_s=60)


@pytest.mark.select_plugin
def test_the_kill_switch_is_seen_after_the_clock_was_set_back(site):
    """srun's job is the one kind that slurmctld still starts, at its submit."""
    shows = 'srun -w dgx1 --gres=gpu:2 -t UNLIMITED sh -c "echo \\$CUDA_VISIBLE_DEVICES"'

    def pair() -> tuple[int, ...]:
        return parse_indices(site.run("ctl", shows, user="alice").out.strip())

    with site.clock_of("slurmctld") as set_to:
        set_to(-1)
        ours = by_policy({}, (2,), ("dgx1",))["dgx1"]
        until(lambda: pair() == ours, "the policy's pair", 60)
        site.run("ctl", f"touch {SWITCH}")
        time.sleep(2)
        assert pair() == stock_pair(site)["dgx1"]
        site.run("ctl", f"rm {SWITCH}")


@both_ways
@pytest.mark.parametrize("process", ["engine", "munged"])
def test_one_process_alone_has_a_wrong_clock(watch, cluster, process, hours):
    """Nothing is lost by it: jobs of meanwhile run in the end, and later ones as ever.

    What munge kept from being launched Slurm puts back for two minutes, a minute or two later, and
    then looks at once a minute.
    """
    runs = cluster.sbatch(*PAIR, "dgx2", sleep_s=900)
    gpus = cluster.running_gpus([runs])
    jobid = waits(cluster)
    with cluster.clock_shifted(process, hours=hours):
        meanwhile = cluster.sbatch(*PAIR, "bridged1", sleep_s=2)
        time.sleep(10)
    goes_on(cluster, jobid)
    cluster.wait_state(meanwhile, "COMPLETED", timeout_s=400)
    assert cluster.running_gpus([runs]) == gpus
    cluster.end([jobid, runs])
    advised_again(cluster)
