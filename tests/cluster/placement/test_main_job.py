"""The main job, live and whole: each form of request gets the GPUs the policy says.

What it should get the policies say in this process; what Slurm alone would have given, the same
request with `gpu-topo: off` in the same state of the cluster.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from live_harness import (
    GPUS,
    MACHINES,
    Busy,
    Gpus,
    by_policy,
    explained,
    goes_by_links,
    got_by,
    topology_of,
    visible,
)
from modes import enforcement

from simulation.core.link_quality import judge
from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from slurm_cluster.slurm import RECORD_EACH_NODE
from slurm_cluster.slurm_text import parse_indices, parse_jobs

pytestmark = [pytest.mark.cluster, pytest.mark.both_modes, pytest.mark.enforced]

OFF = "--comment=gpu-topo: off"
EMPTY: Busy = {}
FRAGMENTED: Busy = {
    "dgx1": (0, 3),
    "dgx2": (2, 5, 6),
    "minsky1": (0,),
    "bridged1": (1, 6),
    "amd1": (0, 3, 5),
}
STATES = {"empty nodes": EMPTY, "fragmented nodes": FRAGMENTED}
in_both_states = pytest.mark.parametrize(
    "state",
    ["fragmented nodes", pytest.param("empty nodes", marks=pytest.mark.long("the simpler state"))],
)


@pytest.fixture(scope="module", autouse=True)
def left_clean(session_cluster: Cluster) -> Iterator[None]:
    """`hold` leaves GPUs in use from test to test."""
    yield
    session_cluster.reset()


@pytest.fixture
def hold(live: Cluster) -> Iterator[Callable[[Busy], None]]:
    """hold(busy): exactly those GPUs are in use by others; set up anew only where needed."""

    def prepare(busy: Busy) -> None:
        if not live.uses_exactly(busy):
            live.reset()
            live.occupy_nodes(busy)

    yield prepare
    live.run("ctl", "scancel -u alice")
    until(lambda: not live.run("ctl", "squeue -h -u alice").out, "alice's jobs are gone")
    live.wait_reconciled()


class Form(NamedTuple):
    """A way to ask for `count` GPUs of one node."""

    args: tuple[str, ...]
    count: int
    hint: str = ""


FORMS = {
    "--gres=gpu:2": Form(("--gres=gpu:2",), 2),
    "--gres=gpu:3": Form(("--gres=gpu:3",), 3),
    "--gres=gpu:1": Form(("--gres=gpu:1",), 1),
    "--gpus=3": Form(("--gpus=3",), 3),
    "--gpus-per-node=2": Form(("-N1", "--gpus-per-node=2"), 2),
    "--gpus-per-task=1 -n3": Form(("-N1", "-n3", "--gpus-per-task=1"), 3),
    "--ntasks-per-gpu=1": Form(("-N1", "--gpus=3", "--ntasks-per-gpu=1"), 3),
    "--cpus-per-gpu=1": Form(("--gpus=2", "--cpus-per-gpu=1"), 2),
    "--mem-per-gpu=50": Form(("--gres=gpu:2", "--mem-per-gpu=50"), 2),
}
EMPTY_FORMS = {
    "--gres=gpu:4": Form(("--gres=gpu:4",), 4),
    "pattern=all-to-all": Form(("--gres=gpu:4",), 4, "pattern=all-to-all"),
    "pattern=tree, policy=mapa-preserve": Form(
        ("--gres=gpu:3",), 3, "pattern=tree,policy=mapa-preserve"
    ),
    "sensitive=no": Form(("--gres=gpu:2",), 2, "sensitive=no"),
}
#: Every policy, pattern and way to count GPUs once; the others are in the long run.
SHORT = {
    "empty nodes": ("--gres=gpu:3", "--gpus-per-node=2", *EMPTY_FORMS),
    "fragmented nodes": ("--gres=gpu:2", "--gpus=3", "--gpus-per-task=1 -n3", "--gres=gpu:1"),
}
CASES = [
    pytest.param(
        form,
        state,
        id=f"{name} on {state}",
        marks=[] if name in SHORT[state] else [pytest.mark.long("one of two dozen ways to ask")],
    )
    for state, forms in (("empty nodes", FORMS | EMPTY_FORMS), ("fragmented nodes", FORMS))
    for name, form in forms.items()
]


def ask(cluster: Cluster, form: Form, comment: str) -> tuple[list[int], dict[str, Gpus]]:
    """The same request to each machine at once: the jobs, and what each node's job got."""
    extra = (comment,) if comment else ()
    ids = cluster.submit_many([("-w", node, *form.args, *extra) for node in MACHINES])
    return ids, dict(zip(MACHINES, cluster.running_gpus(ids), strict=True))


def assert_not_worse(node: str, ours: tuple[int, ...], stock: tuple[int, ...]) -> None:
    """Slurm's set is not better by bandwidth or weakest link without being worse by the other."""
    mine, slurms = (judge(topology_of(node), gpus) for gpus in (ours, stock))
    better = slurms.effbw_gbps > mine.effbw_gbps or slurms.weakest_gbps > mine.weakest_gbps
    worse = slurms.effbw_gbps < mine.effbw_gbps or slurms.weakest_gbps < mine.weakest_gbps
    assert worse or not better, f"{node}: {ours} {mine}, Slurm's {stock} {slurms}"


@pytest.mark.parametrize(("form", "state"), CASES)
@pytest.mark.both_modes("short")
def test_each_machine_gives_the_gpus_the_policy_says(live, hold, form, state):
    """Slurm's books, the job's environment and the policy agree; Slurm's choice is not better."""
    busy = STATES[state]
    hold(busy)
    ids, stock = ask(live, form, OFF)
    live.end(ids, busy)
    ids, ours = ask(live, form, f"--comment=gpu-topo: {form.hint}" if form.hint else "")
    assert ours == {n: by_policy(busy, (form.count,), (n,), form.hint) for n in MACHINES}
    assert visible(live, ids) == [gpus[node] for node, gpus in ours.items()]
    if not form.hint:  # the judge weighs rings of jobs that feel them
        for node in MACHINES:
            assert_not_worse(node, ours[node][node], stock[node][node])


TYPES = {"dgx1": "v100", "minsky1": "p100", "bridged1": "a100", "amd1": "mi250x"}


@in_both_states
def test_a_typed_request(live, hold, state):
    """--gres=gpu:v100:2 and the like: the best node of that type, the policy's GPUs on it."""
    busy = STATES[state]
    hold(busy)
    ids = live.submit_many([(f"--gres=gpu:{kind}:2",) for kind in TYPES.values()])
    wanted = [
        by_policy(busy, (2,), [n for n in MACHINES if MACHINES[n] == MACHINES[node]])
        for node in TYPES
    ]
    assert live.running_gpus(ids) == wanted
    assert visible(live, ids) == [gpus for got in wanted for gpus in got.values()]


def test_gpus_per_socket(live, hold):
    """One GPU of each socket, which cons_tres alone can promise: no advice breaks it."""
    hold(FRAGMENTED)
    args = ("-N1", "-n2", "-c2", "--sockets-per-node=2", "--gpus-per-socket=1")
    ids = live.submit_many([("-w", node, *args) for node in ("dgx1", "dgx2", "bridged1")])
    for got, inside in zip(live.running_gpus(ids), visible(live, ids), strict=True):
        assert list(got.values()) == [inside]
        assert [gpu // 4 for gpu in inside] == [0, 1]


@pytest.mark.parametrize("tool", ["srun", "salloc"])
def test_interactive_jobs(live, hold, tool):
    """The same GPUs in scontrol's words and inside, asked from the node itself."""
    hold(FRAGMENTED)
    inner = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES; scontrol show job -d $SLURM_JOB_ID"]
    command = [tool, "-w", "dgx2", "--gpus=3", *(["srun"] if tool == "salloc" else []), *inner]
    first, _, rest = live.run("ctl", command, user="alice").out.partition("\n")
    (job,) = parse_jobs(rest)
    assert job.gpus == by_policy(FRAGMENTED, (3,), ("dgx2",))
    assert tuple(sorted(parse_indices(first))) == job.gpus["dgx2"]


def test_tasks_of_an_array_one_after_the_other(live, hold):
    """Each task gets what the policy says for what the earlier ones left."""
    hold(FRAGMENTED)
    array = live.sbatch("-w", "dgx1", "--array=0-2", "--gres=gpu:2", script="sleep 300")
    until(lambda: [job.state for job in live.jobs(array)] == ["RUNNING"] * 3, "three tasks run")
    by_task = sorted(live.jobs(array), key=lambda job: int(job.fields["ArrayTaskId"]))
    busy = list(FRAGMENTED["dgx1"])
    for job in by_task:
        assert job.gpus == by_policy({"dgx1": busy}, (2,), ("dgx1",))
        busy += job.gpus["dgx1"]


@in_both_states
def test_two_nodes_with_their_own_gaps(live, hold, state):
    """-N2: the policy's GPUs on each node, in the books and in a task on each node."""
    busy = STATES[state]
    hold(busy)
    script = f"{RECORD_EACH_NODE}; sleep 300"
    jobid = live.sbatch("-p", "dgx", "-N2", "--gpus-per-node=4", script=script)
    got = live.wait_running(jobid).gpus
    if enforcement() == "slots" and busy:
        # Slurm takes the same slots on every node; no four are free on both of these.
        assert [len(gpus) for gpus in got.values()] == [4, 4]
    else:
        assert got == by_policy(busy, (4, 4), ("dgx1", "dgx2"))
    for node, gpus in got.items():
        assert tuple(sorted(live.visible_gpus(jobid, node=node))) == gpus


@pytest.mark.both_modes("short")
def test_parts_of_a_heterogeneous_job(live, hold):
    """Two machines, two counts, one job: each part gets the policy's GPUs."""
    hold(FRAGMENTED)
    parts = ("-w", "dgx2", "--gres=gpu:2", ":", "-w", "bridged1", "--gpus=4")
    jobid = live.sbatch(*parts, script="sleep 300")
    # only backfill starts such jobs
    until(lambda: [j.state for j in live.jobs(jobid)] == ["RUNNING"] * 2, "both parts run", 90)
    wanted = [
        by_policy(FRAGMENTED, (2,), ("dgx2",)),
        by_policy(FRAGMENTED, (4,), ("bridged1",)),
    ]
    assert [job.gpus for job in live.jobs(jobid)] == wanted


@pytest.mark.parametrize(
    "count", [2, 5, *(pytest.param(n, marks=pytest.mark.long("another number")) for n in (1, 4))]
)
def test_the_policys_node_of_all(live, hold, count):
    """Among nodes of equal Weight, with --nodelist, --exclude or neither."""
    hold(FRAGMENTED)
    asked = f"--gres=gpu:{count}"
    assert got_by(live, "-N1", asked) == by_policy(FRAGMENTED, (count,), tuple(GPUS))
    others = [node for node in GPUS if node not in ("amd1", "bridged1")]
    assert got_by(live, "-N1", asked, "-x", "amd1,bridged1") == by_policy(
        FRAGMENTED, (count,), others
    )
    assert got_by(live, "-w", "dgx2", asked) == by_policy(FRAGMENTED, (count,), ("dgx2",))


@contextmanager
def also(cluster: Cluster, nodes: Sequence[str], feature: str) -> Iterator[None]:
    """These nodes have one feature more for the length of the block."""
    show = "scontrol show node {} | sed -n 's/ *ActiveFeatures=//p'"
    own = {node: cluster.run("ctl", show.format(node)).out.strip() for node in nodes}
    own = {node: "" if text == "(null)" else text for node, text in own.items()}

    def update(kind: str, node: str, *features: str) -> None:
        words = f"nodename={node} {kind}={','.join(filter(None, features))}"
        cluster.run("ctl", f"scontrol update {words}")

    for node, text in own.items():
        update("availablefeatures", node, text, feature)
        update("activefeatures", node, text, feature)
    cluster.wait_reconciled()
    try:
        yield
    finally:
        for node, text in own.items():
            update("activefeatures", node, text)
            update("availablefeatures", node, text)
        cluster.wait_reconciled()


def test_a_constraint_names_the_candidates(live, hold):
    """-C: only nodes with the feature, the best of them."""
    hold(FRAGMENTED)
    some = ("dgx1", "minsky1", "bridged1")
    with also(live, some, "quiet"):
        wanted = by_policy(FRAGMENTED, (2,), some)
        assert got_by(live, "-N1", "--gres=gpu:2", "-C", "quiet") == wanted


def test_a_lighter_node_is_taken_however_badly_connected(live, hold):
    """dgx1 has two GPUs left on different sockets: taken while it is lighter, else not."""
    busy = {"dgx1": (1, 2, 3, 4, 6, 7)}
    hold(busy)
    update = "scontrol update nodename=dgx2 weight="
    with live.temporarily(f"{update}10", f"{update}1"):
        live.wait_reconciled()
        assert got_by(live, "-p", "dgx", "-N1", "--gres=gpu:2") == {"dgx1": (0, 5)}
    live.wait_reconciled()
    wanted = by_policy(busy, (2,), ("dgx1", "dgx2"))
    assert list(wanted) == ["dgx2"]
    assert got_by(live, "-p", "dgx", "-N1", "--gres=gpu:2") == wanted


MIX = (
    ("-w", "dgx1", "--gres=gpu:2"),
    ("-w", "dgx1", "--gpus=3"),
    ("-w", "bridged1", "--gpus-per-node=2"),
    ("-w", "amd1", "--gres=gpu:2"),
    ("-w", "amd1", "--gres=gpu:4"),
    ("-w", "minsky1", "-n3", "--gpus-per-task=1"),
    ("-w", "dgx1,dgx2", "-N2", "--gpus-per-node=2"),
)


def test_off_and_observe_change_nothing(live, hold):
    """Hint off, partitions off and observe: job by job what stock Slurm gives."""

    def placements(*extra: str) -> list[Gpus]:
        # started in this order: each state follows from the one before
        ids = live.submit_many([(*args, *extra) for args in MIX], script="sleep 300")
        result = live.running_gpus(ids)
        live.end(ids)
        return result

    def by_stock_slurm() -> list[Gpus]:
        if enforcement() == "slots":
            # Without the bridge Slurm has other GRES types.
            return placements(OFF)
        with live.variant_as("stock"):
            return placements()

    hold(EMPTY)
    stock = by_stock_slurm()
    assert placements(OFF) == stock
    for partition in ("off", "observe"):
        assert placements("-p", partition) == stock
    assert placements() != stock


# With slots the choice is made at the submit, before there is a job id: test_slots_live.py.
@pytest.mark.select_plugin
def test_observe_writes_down_what_would_have_been_done(live, hold):
    """The decision log has both choices for a job that kept Slurm's."""
    hold(EMPTY)
    got = live.started("-p", "observe", "-w", "bridged1", "--gres=gpu:2", script="sleep 300")
    output = explained(live, got.id)
    assert output["applied"] is False
    assert {n: tuple(g) for n, g in output["slurm"]["gpus"].items()} == got.gpus
    chosen = {node: tuple(sorted(gpus)) for node, gpus in output["chosen"]["gpus"].items()}
    assert chosen == by_policy(EMPTY, (2,), ("bridged1",))
    # 22.05 and 23.11 find the bridged pair by themselves
    assert (chosen == got.gpus) == goes_by_links(live)
    assert "AdminComment" not in got.fields
