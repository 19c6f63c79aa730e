"""Scripted states of the queue in which a job waits, each for a reason of its own.

A state makes what it needs, and gives the numbers of the job and of another one that the sentence
names. What `gputopo why` then says stands in tests/slurm_plugin/tell/why/sentences.py.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from live_harness import PICKY, TAKEN

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until

#: What the states need in slurm.conf.
LINES = """Licenses=matlab:1
AccountingStorageEnforce=limits,qos
PartitionName=short Nodes=dgx[1-2] MaxTime=5 State=UP
PartitionName=single Nodes=dgx[1-2] MaxNodes=1 MaxTime=INFINITE DefaultTime=10 State=UP
"""
Given = Callable[[Cluster, ExitStack], dict[str, int]]


@dataclass(frozen=True)
class State:
    """One state: how it is made, and the reason that Slurm then tells ('' for whatever it is)."""

    given: Given
    reason: str
    #: The ways of enforcing in which it is so.
    modes: tuple[str, ...]


STATES: dict[str, State] = {}


def state(reason: str, *modes: str) -> Callable[[Given], Given]:
    """Adds a state to the table, by the function's name."""

    def add(given: Given) -> Given:
        name = given.__name__.replace("_", " ")
        STATES[name] = State(given, reason, modes or ("select", "slots"))
        return given

    return add


@contextmanager
def waiting(cluster: Cluster, name: str) -> Iterator[dict[str, int]]:
    """A block in which the state is so: `job`, and the numbers of other jobs."""
    made = STATES[name]
    with ExitStack() as undo:
        numbers = made.given(cluster, undo)
        job = numbers["job"]

        def is_so() -> bool:
            shown = cluster.run("ctl", f"squeue -h -j {job} -o %r").out
            return made.reason in shown

        until(is_so, lambda: f"{name}: {cluster.run('ctl', f'scontrol show job {job}').out}", 30)
        cluster.wait_reconciled()
        yield numbers


def sbatch(cluster: Cluster, *args: str) -> dict[str, int]:
    return {"job": cluster.sbatch("-t", "60", *args, sleep_s=300)}


def fill(cluster: Cluster, **free: int) -> None:
    """Leaves so many GPUs of these nodes free, and none of the other one."""
    cluster.occupy_nodes({node: range(left, 8) for node, left in free.items()})


def changed(cluster: Cluster, undo: ExitStack, do: str, back: str) -> None:
    undo.enter_context(cluster.temporarily(do, back))


FOUR = ("-p", "dgx", "--gres=gpu:4")
ONE = ("-w", "dgx1", "--gres=gpu:1")


@state("Resources", "select")
def fragmentation(cluster, undo):
    fill(cluster, dgx1=3, dgx2=3)
    return sbatch(cluster, *FOUR)


@state("BeginTime", "slots")
def fragmentation_behind_a_gate(cluster, undo):
    fill(cluster, dgx1=3, dgx2=3)
    return sbatch(cluster, *FOUR)


@state("Resources", "select")
def too_few_free_GPUs(cluster, undo):
    fill(cluster, dgx1=0, dgx2=1)
    return sbatch(cluster, *FOUR)


@state("Resources", "select")
def two_nodes_and_one_has_enough(cluster, undo):
    fill(cluster, dgx1=5, dgx2=3)
    return sbatch(cluster, *FOUR, "-N2")


@state("Priority", "select")
def priority(cluster, undo):
    fill(cluster, dgx1=3, dgx2=3)
    first = cluster.sbatch("-t", "60", *FOUR, "--nice=0", user="bob")
    return {**sbatch(cluster, *FOUR, "--nice=10"), "first": first}


@state("", "select")
def backfill_would_delay_the_first(cluster, undo):
    cluster.started("-p", "dgx", "-w", "dgx2", "-t5", "--gres=gpu:4", user="bob", sleep_s=300)
    first = cluster.sbatch("-t", "60", "-w", "dgx2", "--gres=gpu:8", user="bob")
    return {**sbatch(cluster, "-w", "dgx2", "--gres=gpu:4", "--nice=10"), "first": first}


@state("Dependency")
def dependency(cluster, undo):
    first = cluster.started(*ONE, sleep_s=300, user="alice").id
    return {**sbatch(cluster, *ONE, f"--dependency=afterok:{first}"), "first": first}


@state("DependencyNeverSatisfied")
def dependency_that_never_comes(cluster, undo):
    first = cluster.sbatch(*ONE, script="false")
    cluster.wait_finished(first)
    return {**sbatch(cluster, *ONE, f"--dependency=afterok:{first}"), "first": first}


@state("BeginTime")
def begin_time(cluster, undo):
    return sbatch(cluster, *ONE, "--begin=now+1hour")


@state("Reservation")
def its_own_reservation_is_later(cluster, undo):
    how = "reservationname=class starttime=now+1hour duration=30 users=alice nodes=dgx1"
    changed(
        cluster,
        undo,
        f"scontrol create {how}",
        "scancel -u alice; scontrol delete reservationname=class",
    )
    return sbatch(cluster, *ONE, "--reservation=class", "-t", "10")


def repair(cluster: Cluster, undo: ExitStack, start: str) -> None:
    how = f"reservationname=repair starttime={start} duration=60 users=root nodes=dgx1"
    do = f"scontrol create {how} flags=maint,ignore_jobs"
    changed(cluster, undo, do, "scontrol delete reservationname=repair")


@state("ReqNodeNotAvail")
def maintenance(cluster, undo):
    repair(cluster, undo, "now")
    return sbatch(cluster, *ONE)


@state("ReqNodeNotAvail")
def maintenance_before_its_end(cluster, undo):
    repair(cluster, undo, "now+10minutes")
    return sbatch(cluster, *ONE)


@state("")
def features(cluster, undo):
    changed(
        cluster,
        undo,
        "scontrol update nodename=dgx1 availablefeatures=big activefeatures=big",
        "scontrol update nodename=dgx1 availablefeatures= activefeatures=",
    )
    fill(cluster, dgx1=0)
    return sbatch(cluster, "-C", "big", "--gres=gpu:2")


@state("BadConstraints", "select")
def features_that_no_node_has_any_more(cluster, undo):
    change = "scontrol update nodename=dgx1 availablefeatures={0} activefeatures={0}"
    on, off = change.format("big"), change.format("")
    changed(cluster, undo, on, off)
    fill(cluster, dgx1=0)
    job = sbatch(cluster, "-C", "big", "--gres=gpu:2")
    cluster.run("ctl", off)
    return job


@state("")
def CPUs_beside_free_GPUs(cluster, undo):
    cluster.started("-p", "off", "-w", "dgx1", "-n14", "--mem=100", user="bob", sleep_s=300)
    return sbatch(cluster, "-w", "dgx1", "--gres=gpu:2", "-c4", "--mem=100")


@state("")
def memory_beside_free_GPUs(cluster, undo):
    cluster.started("-p", "off", "-w", "dgx1", "-n1", "--mem=3500", user="bob", sleep_s=300)
    return sbatch(cluster, "-w", "dgx1", "--gres=gpu:2", "-c1", "--mem=1000")


@state("")
def a_whole_node(cluster, undo):
    cluster.started("-p", "off", "-w", "dgx1", "-n1", "--mem=100", user="bob", sleep_s=300)
    return sbatch(cluster, "-w", "dgx1", "--gres=gpu:2", "--exclusive", "--mem=100")


@state("ReqNodeNotAvail", "select")
def a_drained_node(cluster, undo):
    changed(
        cluster,
        undo,
        "scontrol update nodename=dgx1 state=drain reason='bad fan'",
        "scontrol update nodename=dgx1 state=resume",
    )
    return sbatch(cluster, *ONE)


@state("JobHeldUser")
def held_by_its_user(cluster, undo):
    return sbatch(cluster, *ONE, "--hold")


@state("JobHeldAdmin")
def held_by_an_administrator(cluster, undo):
    job = sbatch(cluster, *ONE, "--begin=now+1hour")
    cluster.run("ctl", f"scontrol hold {job['job']}")
    return job


#: slurmstepd where slurmd is: no node can start a job without it.
STEPD = '"$(dirname "$(readlink -f "$(command -v slurmd)")")"/slurmstepd'


@contextmanager
def starting_nothing(cluster: Cluster, node: str) -> Iterator[None]:
    """A block in which this node takes jobs and cannot start them: Slurm puts them back, held."""
    with cluster.temporarily(f"chmod a-x {STEPD}", f"chmod a+x {STEPD}", host=node):
        yield


@state("launch failed requeued held")
def a_start_that_failed(cluster, undo):
    undo.enter_context(starting_nothing(cluster, "dgx1"))
    return sbatch(cluster, *ONE)


@state("Licenses")
def licences(cluster, undo):
    cluster.started("-p", "off", "-L", "matlab:1", user="bob", sleep_s=300)
    return sbatch(cluster, *ONE, "-L", "matlab:1")


@state("JobArrayTaskLimit")
def tasks_of_an_array(cluster, undo):
    return sbatch(cluster, *ONE, "--array=0-3%1")


@state("PartitionDown")
def a_partition_that_is_down(cluster, undo):
    update = "scontrol update partitionname=dgx state="
    changed(cluster, undo, f"{update}down", f"{update}up")
    return sbatch(cluster, *FOUR)


@state("PartitionInactive", "select")
def an_inactive_partition(cluster, undo):
    return closed(cluster, undo, "state=inactive", "state=up")


@state("", "select")
def a_partition_for_another_account(cluster, undo):
    return closed(cluster, undo, "allowaccounts=strangers", "allowaccounts=ALL")


@state("", "select")
def a_partition_closed_to_its_QOS(cluster, undo):
    return closed(cluster, undo, "denyqos=normal", "denyqos=")


@state("", "select")
def a_partition_for_another_group(cluster, undo):
    return closed(cluster, undo, "allowgroups=root", "allowgroups=ALL")


def closed(cluster, undo, how, back):
    """A job that waited for GPUs when its partition was closed to it; all of them are free now."""
    held = cluster.occupy_nodes({"dgx1": range(8), "dgx2": range(8)})
    job = sbatch(cluster, *FOUR)
    update = "scontrol update partitionname=dgx"
    changed(cluster, undo, f"{update} {how}", f"{update} {back}")
    cluster.end(one for some in held.values() for one in some)
    return job


@state("PartitionTimeLimit")
def the_partitions_time_limit(cluster, undo):
    return sbatch(cluster, "-p", "short", "--gres=gpu:1")


@state("PartitionNodeLimit")
def the_partitions_node_limit(cluster, undo):
    return sbatch(cluster, "-p", "single", "-N2", "--gres=gpu:1")


def limited(cluster, undo, what, limit, unset):
    set_to = f"sacctmgr -i modify {what} set {limit}="
    changed(cluster, undo, set_to + unset[0], set_to + unset[1])


@state("AssocGrpGRES")
def GPUs_of_an_account(cluster, undo):
    limited(cluster, undo, "account research", "GrpTRES", ("gres/gpu=2", "gres/gpu=-1"))
    cluster.started(*ONE, "--gres=gpu:2", user="bob", sleep_s=300)
    return sbatch(cluster, *ONE)


@state("AssocGrpGRES")
def GPUs_of_an_account_above(cluster, undo):
    do = "sacctmgr -i"
    under = f"{do} modify account research set parent="
    add = f"{do} add account faculty && {do} modify account faculty set GrpTRES=gres/gpu=2"
    changed(
        cluster,
        undo,
        f"{add} && {under}faculty",
        f"scancel -u alice; scancel -u bob; {under}root && {do} delete account faculty",
    )
    cluster.started(*ONE, "--gres=gpu:2", user="bob", sleep_s=300)
    return sbatch(cluster, *ONE)


@state("QOSMaxGRESPerUser")
def GPUs_of_a_user_in_a_QOS(cluster, undo):
    limited(cluster, undo, "qos normal", "MaxTRESPerUser", ("gres/gpu=2", "gres/gpu=-1"))
    cluster.started(*ONE, "--gres=gpu:2", user="alice", sleep_s=300)
    return sbatch(cluster, *ONE)


@state("AssocMaxJobsLimit")
def jobs_of_a_user(cluster, undo):
    limited(cluster, undo, "user alice", "MaxJobs", ("1", "-1"))
    cluster.started(*ONE, user="alice", sleep_s=300)
    return sbatch(cluster, *ONE)


@state("AssocMaxJobsLimit", "slots")
def a_limit_behind_an_opened_gate(cluster, undo):
    """The engine lets the job go when GPUs come free, and Slurm then keeps it."""
    limited(cluster, undo, "user alice", "MaxJobs", ("1", "-1"))
    held = cluster.occupy("dgx1", range(8))
    cluster.started("-p", "off", "-w", "dgx1", user="alice", sleep_s=300)
    job = sbatch(cluster, *ONE)
    cluster.end(held)
    return job


@state("BeginTime")
def min_utility(cluster, undo):
    cluster.occupy("dgx1", TAKEN)
    return sbatch(cluster, "-w", "dgx1", "--gres=gpu:2", PICKY)
