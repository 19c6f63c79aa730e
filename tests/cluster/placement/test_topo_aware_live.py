"""TOPO-AWARE live: Table 1 on a real Slurm as in the simulator, and jobs that really wait."""

import json
import time
from collections.abc import Sequence

import pytest
from live_harness import at_home, configure_engine

from gres_topology import catalog
from papers.experiments.sc17 import POLICIES, loaded, policies
from papers.experiments.sc17.profile import Profiled, interference_of
from papers.experiments.sc17.table1 import jobs_of
from policies.registry import registry
from simulation.core.record import Record
from simulation.models.placing import Simulator
from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until

pytestmark = [pytest.mark.cluster, pytest.mark.both_modes, pytest.mark.enforced]

NODE = "minsky1"
#: Neighbours are read from the start, for every job of alice.
WATCHED = "users: {alice: {policy: topo-aware-p}}"
PROFILES = "/tmp/gputopo-profiles"
#: The hint of a job of two GPUs that waits for a whole socket.
WAITS = "policy=topo-aware-p,min-utility=0.5,batch=1"


#: An engine that watches neighbours.
watched_site = at_home(autouse=True, yaml=WATCHED)


def submit(cluster: Cluster, gpus: int, hint: str, *args: str, seconds: float = 300) -> int:
    hint = f"--comment=gpu-topo: {hint}"
    return cluster.sbatch("-w", NODE, f"--gres=gpu:{gpus}", hint, *args, sleep_s=seconds)


def neighbours(cluster: Cluster) -> dict[str, float | None]:
    """What the engine knows of running jobs."""
    result: dict[str, float | None] = cluster.status()["neighbours"]
    return result


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=() if name == "topo-aware-p" else pytest.mark.long("half a minute")
        )
        for name in POLICIES
    ],
)
def test_table_1_gets_the_gpus_the_simulator_says(cluster, name):
    """The authors' six jobs, submitted and ended in the order in which that happens there."""
    jobs = jobs_of("authors")
    speed = Profiled(loaded("prof_from_experiments_full"))
    run = Simulator({NODE: catalog.load("minsky")}, policies()[name], speed).run(jobs)
    write_profiles(cluster)
    records = {record.job.job_id: record for record in run.records}
    keys = registry.hints_of(name)
    ids: dict[int, int] = {}
    for what, number in in_order(run.records):
        record = records[number]
        if what == "end":
            # Ends are minutes apart there; about a job that waits the engine is asked once a
            # second at most, and one that ends sooner would leave its GPUs to later jobs.
            time.sleep(1.5)
            cluster.cancel(ids[number])
            cluster.wait_finished(ids[number])
            cluster.wait_reconciled()
        elif what == "submit":
            words = [word for word in record.job.hint.split(",") if word.partition("=")[0] in keys]
            hint = ",".join([f"policy={name}", *words])
            gpus = record.job.gpus_per_node[0]
            ids[number] = submit(cluster, gpus, hint, f"--nice={100 * number}")
        else:
            expected = tuple(sorted(record.placement.gpus[NODE]))
            got = cluster.wait_running(ids[number], timeout_s=90).gpus[NODE]
            assert got == expected, f"job {number} under {name}"


def write_profiles(cluster: Cluster) -> None:
    """What the simulator's policies know of neighbours, as a site would write it down."""
    known: dict[str, list[dict[str, object]]] = {}
    measured = interference_of(loaded("prof_from_experiments_full")).measured
    for (kind, other), slowdown in measured.items():
        pair = {"gpus": kind.gpus, "batch": kind.batch, "slowdown": max(1.0, slowdown)}
        theirs = {"other": other.profile, "other_gpus": other.gpus, "other_batch": other.batch}
        known.setdefault(kind.profile, []).append(pair | theirs)
    cluster.run("ctl", f"mkdir -p {PROFILES}")
    for name, pairs in known.items():
        text = json.dumps({"profile": name, "beside": pairs})
        cluster.put("ctl", f"{PROFILES}/{name}.json", text)
    configure_engine(cluster, f"topo_aware: {{profiles: {PROFILES}}}")


def in_order(records: Sequence[Record]) -> list[tuple[str, int]]:
    """What happens to which job, one after the other."""
    result = []
    for one in records:
        at_s = {"end": one.end_s, "submit": one.job.submit_s, "start": one.start_s}
        result += [(at_s[what], order, what, one.job.job_id) for order, what in enumerate(at_s)]
    return [(what, number) for _, _, what, number in sorted(result)]


def test_it_waits_for_two_gpus_of_one_socket_and_others_pass(cluster):
    """One free GPU on each socket: topo-aware-p waits, says why, and starts on a pair."""
    holders = dict(zip((0, 2), cluster.occupy(NODE, (0, 2)), strict=True))
    job = submit(cluster, 2, WAITS)
    # Its gate is shut at submit, and why it waits is written down a moment later.
    why = "the best free GPUs have a utility of 0."
    until(lambda: why in cluster.job(job).admin_comment, "it says why it waits")
    comment = cluster.wait_postponed(job).fields["AdminComment"]
    assert "communication 0.00" in comment
    assert "the job asks for 0.50" in comment
    queue = cluster.run("ctl", ["squeue", "-h", "-j", str(job), "-o", "%r"]).out.strip()
    assert queue == "BeginTime"

    def explanation() -> str:
        return cluster.run("ctl", ["gputopo", "explain", str(job)]).out

    until(lambda: "postponed" in explanation(), "the decision is written down", 10)
    assert "would be now" in explanation()
    assert "(communication 0.00, interference" in explanation()
    passed = submit(cluster, 1, "policy=topo-aware,batch=128", "--nice=500")
    (gpu,) = cluster.wait_running(passed).gpus[NODE]
    assert cluster.job(job).state == "PENDING"
    whole = 2 if gpu == 1 else 0
    cluster.cancel(holders[whole])
    assert cluster.wait_running(job, timeout_s=60).gpus == {NODE: (whole, whole + 1)}


def test_without_postponing_it_takes_the_split_pair(cluster):
    cluster.occupy(NODE, (0, 2))
    job = submit(cluster, 2, "policy=topo-aware,batch=1")
    assert cluster.wait_running(job).gpus == {NODE: (1, 3)}


def test_tasks_of_an_array_wait_and_start_each_on_a_pair(cluster):
    holders = cluster.occupy(NODE, (0, 2))
    array = submit(cluster, 2, WAITS, "--array=0-1")
    until(lambda: {job.reason for job in cluster.jobs(array)} == {"BeginTime"}, "the array waits")
    assert {job.state for job in cluster.jobs(array)} == {"PENDING"}
    cluster.cancel(holders[0])
    until(lambda: _gpus_of(cluster, array) == {(0, 1)}, "one task has a socket", 60)
    cluster.cancel(holders[1])
    until(lambda: _gpus_of(cluster, array) == {(0, 1), (2, 3)}, "so has the other", 60)


def _gpus_of(cluster: Cluster, array: int) -> set[tuple[int, ...]]:
    """GPUs of each task that runs."""
    return {job.gpus[NODE] for job in cluster.jobs(array) if job.gpus}


def test_what_depends_on_a_job_that_waits_starts_after_it(cluster):
    holders = cluster.occupy(NODE, (0, 2))
    first = submit(cluster, 2, WAITS, seconds=1)
    after = submit(cluster, 2, WAITS, f"--dependency=afterok:{first}")
    cluster.wait_postponed(first)
    until(lambda: cluster.job(after).reason == "Dependency", "the other depends on it")
    cluster.cancel(holders[1])
    assert cluster.wait_finished(first).state == "COMPLETED"
    assert cluster.wait_running(after, timeout_s=60).gpus == {NODE: (2, 3)}


def test_a_restarted_engine_knows_the_neighbours_before_its_first_answer(cluster):
    """A tiny batch on GPU 0, started before: the next one goes to the other socket."""
    first = submit(cluster, 1, "policy=topo-aware,batch=1")
    assert cluster.wait_running(first).gpus == {NODE: (0,)}
    cluster.engine("restart")
    assert neighbours(cluster)["age_s"] is not None
    second = submit(cluster, 1, "policy=topo-aware,batch=1")
    assert cluster.wait_running(second).gpus == {NODE: (2,)}


@pytest.mark.long("10 s of waiting")
def test_the_cache_follows_ends_and_is_never_older_than_its_bound(cluster):
    # Where a reading takes long the next one may be half of the bound away, and no more.
    configure_engine(cluster, "topo_aware: {refresh_s: 1, max_age_s: 6}")
    ids = cluster.occupy(NODE, (0, 2))
    until(lambda: neighbours(cluster)["jobs"] == 2, "both are known", 10)
    cluster.cancel(*ids)
    until(lambda: neighbours(cluster)["jobs"] == 0, "both are gone", 10)
    ages = [neighbours(cluster)["age_s"] for _ in range(10)]
    assert all(age is not None and age < 6 for age in ages), (ages, cluster.status())


@pytest.mark.long("half a minute of jobs")
def test_finished_jobs_teach_their_run_times(cluster):
    """Jobs of one kind, alone on their socket; a failed one teaches nothing.

    Neither does one whose end the queue shows before Slurm has told of it, so there may be more.
    """
    path = "/var/lib/gputopo/learned-profiles.json"
    cluster.run("ctl", f"rm -f {path}")
    configure_engine(cluster, "topo_aware: {refresh_s: 1}")
    hint = "--comment=gpu-topo: policy=topo-aware,profile=bert,batch=4"

    def runs() -> list[float]:
        text = cluster.run("ctl", f"cat {path}", check=False).out
        result: list[float] = json.loads(text)[0]["seconds"] if text else []
        return result

    def run(script: str) -> None:
        cluster.wait_finished(cluster.sbatch("-w", NODE, "--gres=gpu:2", hint, script=script))

    run("sleep 3; exit 1")
    for ended in range(10):
        # Of those before this one: the last ones may not be written down yet.
        assert len(runs()) <= ended
        if len(runs()) >= 5:
            break
        run("sleep 3")
    until(lambda: len(runs()) >= 5, "5 runs are written down", 30)
    # With slots the engine sees a start when it polls the queue, tenths of a second later.
    assert all(2 <= seconds < 20 for seconds in runs()), runs()
