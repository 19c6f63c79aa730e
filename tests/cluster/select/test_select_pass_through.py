"""Kinds of job and node that the select plugin leaves to Slurm, wholly or for the nodes."""

import pytest
from live_harness import preemption
from node_variants import DGX2, other_gpus, wait_node
from select_harness import PREFER, FakeEngine, assert_no_overlap, clear, stock_pair

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until

pytestmark = [pytest.mark.cluster, pytest.mark.select_plugin]


@pytest.fixture
def engine(engine: FakeEngine) -> FakeEngine:
    """The scripted engine, by preference."""
    engine.rule(**PREFER)
    return engine


def assert_unasked(cluster: Cluster, engine: FakeEngine, *args: str) -> int:
    """The job starts and the engine never heard of it; its id."""
    jobid = cluster.started(*args, sleep_s=30).id
    assert engine.questions(jobid) == []
    return jobid


def test_whole_nodes(cluster, engine):
    """A job that gets whole nodes has no choice to make."""
    assert_unasked(cluster, engine, "-w", "dgx1", "--exclusive", "--gres=gpu:2")


@pytest.mark.long("slurm.conf changes for it")
def test_specialised_cores(cluster, engine):
    """--core-spec makes a job exclusive inside the selection itself."""
    cluster.configure_extra("AllowSpecResourcesUsage=YES")
    assert_unasked(cluster, engine, "-w", "dgx1", "--core-spec=1", "--gres=gpu:2")


def test_jobs_without_gpus(cluster, engine):
    """They are neither asked about nor told."""
    jobid = assert_unasked(cluster, engine, "-w", "dgx1", "-n2")
    cluster.cancel(jobid)
    cluster.wait_idle()
    assert not [line for line in engine.lines("ended") if f"job={jobid} " in line]


def set_weights(cluster: Cluster, weight: int) -> None:
    """Gives every node but amd1 a Weight."""
    for node in ("dgx1", "dgx2", "minsky1", "bridged1"):
        cluster.run("ctl", ["scontrol", "update", f"nodename={node}", f"weight={weight}"])


def test_a_node_of_higher_weight_is_never_taken(cluster, engine):
    """Slurm fills light nodes first; heavier ones are not even asked about, unless configured."""
    set_weights(cluster, 10)
    try:
        engine.rule(do="use", nodes={"dgx1": [0, 3]})
        first = cluster.sbatch("--gres=gpu:2", sleep_s=30)
        assert set(cluster.wait_running(first).gpus) == {"amd1"}
        assert engine.asked_nodes(first) == ["amd1"]
        engine.settle(respect_weight="no")
        set_weights(cluster, 10)
        # Slurm tells a plugin of no weight: a question finds it, and the next ones know.
        before = len(engine.tables())
        cluster.started("--gres=gpu:2", sleep_s=30)
        engine.wait_for_table(before)
        assert cluster.started("--gres=gpu:2", sleep_s=30).gpus == {"dgx1": (0, 3)}
    finally:
        set_weights(cluster, 1)


# Slurm powers a node down in two looks at all of them. It looks every 10 s unless told otherwise,
# and at once after a change, but not after one in the very second of its last look.
POWER_SAVING = """SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=86400
SuspendTimeout=1
ResumeTimeout=60
SlurmctldParameters=power_save_interval=1"""


@pytest.mark.long("nodes are powered down and boot")
def test_a_node_that_must_boot_first_is_never_taken(cluster, engine):
    """Weights may be ignored, but not that a job would wait for a node to be powered up."""
    engine.settle(respect_weight="no")
    cluster.configure_extra(POWER_SAVING)
    try:
        wait_state(cluster, "dgx2", "IDLE")
        cluster.expects("ended without a successor")
        # A slurmd that registers brings a node back that is powered down.
        with cluster.without("slurmd", "dgx2"):
            cluster.run("ctl", "scontrol update nodename=dgx2 state=power_down_force")
            wait_state(cluster, "dgx2", "IDLE+POWERED_DOWN")
            jobid = cluster.sbatch("--gres=gpu:v100:2", sleep_s=30)
            assert cluster.wait_running(jobid).gpus == {"dgx1": (3, 6)}
            assert engine.asked_nodes(jobid) == ["dgx1"]
    finally:
        clear(cluster)
        cluster.run("ctl", "rm -f /cluster/extra.conf")
        cluster.switch("gputopo")
        wait_node(cluster)


def wait_state(cluster: Cluster, node: str, state: str) -> None:
    """Until Slurm says exactly this of the node."""

    def found() -> str:
        return cluster.run("ctl", f"scontrol -o show node {node} | grep -oP ' State=\\K\\S+'").out

    until(
        lambda: found().strip() == state, lambda: f"{node} is {found().strip()}, expected {state}"
    )


SWITCHES = "SwitchName=a Nodes=dgx[1-2],minsky1,bridged1,amd1"
OWN_NODES = [
    ("dragonfly", "TopologyPlugin=topology/tree\nTopologyParam=dragonfly", ()),
    ("least loaded nodes", "PartitionName=lln Nodes=ALL LLN=YES DefaultTime=10", ("-p", "lln")),
]


@pytest.mark.parametrize(
    ("line", "args"), [o[1:] for o in OWN_NODES], ids=[o[0] for o in OWN_NODES]
)
@pytest.mark.long("slurm.conf changes for it")
def test_slurms_own_node_choice_is_respected(cluster, engine, line, args):
    """Where Slurm chooses nodes by network or load, only the GPUs on its nodes are chosen."""
    engine.put("/etc/slurm/topology.conf", SWITCHES + "\n")
    try:
        cluster.configure_extra(line)
        engine.rule(do="prefer", order=[3, 2, 1, 0])
        job = cluster.started(*args, "--gres=gpu:2", sleep_s=30)
        assert engine.asked_nodes(job.id) == list(job.gpus)
        assert set(job.gpus.values()) == {(2, 3)}
    finally:
        # slurmctld would not start with a tree and no description of it
        cluster.run("ctl", "rm -f /cluster/extra.conf")
        cluster.switch("gputopo")
        cluster.run("ctl", "rm -f /etc/slurm/topology.conf")


def test_other_nodes_can_be_ruled_out(cluster, engine):
    """other_nodes=no keeps the question to Slurm's own nodes."""
    engine.settle(other_nodes="no")
    jobid = cluster.sbatch("--gres=gpu:2", sleep_s=30)
    nodes = list(cluster.wait_running(jobid).gpus)
    assert engine.asked_nodes(jobid) == nodes


def test_a_setting_of_an_earlier_release_is_named_and_has_no_effect(cluster, engine):
    """max_candidates: one line of the log, and other nodes are asked about all the same."""
    with cluster.slurmctld_log_of() as log:
        engine.settle(max_candidates=1)
        jobid = cluster.sbatch("--gres=gpu:2", sleep_s=30)
        cluster.wait_running(jobid)
    assert len(engine.asked_nodes(jobid)) > 1
    assert sum("max_candidates has no effect any more" in line for line in log) == 1


def test_reserved_gpus(cluster, engine):
    """GPUs reserved for others look free to us: their node stays Slurm's alone, others do not."""
    if cluster.release < (23, 2):
        pytest.skip("Slurm 22.05 cannot reserve GPUs (it refuses TRES=gres/gpu)")
    reserve = "reservationname=r users=bob starttime=now duration=10 nodes=dgx1 tres=gres/gpu=4"
    # For a moment after a reconfigure Slurm calls every node busy.
    create = f"scontrol create reservation {reserve}"
    until(lambda: not cluster.run("ctl", create, check=False).code, "the reservation is made")
    try:
        assert_unasked(cluster, engine, "-w", "dgx1", "--gres=gpu:2")
        assert cluster.started("-w", "dgx2", "--gres=gpu:2", sleep_s=30).gpus == {"dgx2": (3, 6)}
        anywhere = cluster.started("-x", "dgx2", "--gres=gpu:4", sleep_s=30).id
        assert sorted(engine.asked_nodes(anywhere)) == ["amd1", "bridged1", "minsky1"]
        inside = cluster.started("--reservation=r", "--gres=gpu:2", sleep_s=30, user="bob").id
        assert engine.questions(inside) == []
        assert_no_overlap(cluster)
    finally:
        clear(cluster)
        cluster.run("ctl", "scontrol delete reservationname=r")


def test_preemption(cluster, engine):
    """While victims hold the GPUs nothing is asked; afterwards the job is an ordinary one."""
    cluster.configure_extra(preemption("dgx1"))
    engine.rule(do="pass")
    cluster.wait_running(cluster.sbatch("-p", "low", "--gres=gpu:8", sleep_s=300))
    engine.rule(**PREFER)
    winner = cluster.sbatch("-p", "high", "--gres=gpu:2", sleep_s=30)
    assert cluster.wait_running(winner, timeout_s=60).gpus == {"dgx1": (3, 6)}
    own = sum(1 << gpu for gpu in stock_pair(cluster)["dgx1"])
    assert [q["node"] for q in engine.questions(winner)] == [[f"dgx1/8/ff/{own:x}/1"]]
    assert_no_overlap(cluster)


@pytest.mark.long("GPUs of other kinds are declared on every node first")
def test_mig_slices(cluster, engine):
    """A job of slices is asked about with all that is free; one that names no type is not."""
    gres = DGX2 + ";s/\\(NodeName=dgx2.*\\)Type=v100/\\1Type=1g.5gb/"
    with other_gpus(cluster, "s/gpu:v100:8/gpu:1g.5gb:8/", gres):
        jobid = assert_unasked(cluster, engine, "-w", "dgx2", "--gres=gpu:2")
        assert "AdminComment" not in cluster.job(jobid).fields
        assert cluster.visible_gpus(jobid) == cluster.job(jobid).gpus["dgx2"]
        clear(cluster)
        engine.rule(**PREFER)
        job = cluster.started("-w", "dgx2", "--gres=gpu:1g.5gb:2", sleep_s=30)
        assert job.gpus == {"dgx2": (3, 6)}
        assert [q["type"] for q in engine.questions(job.id)] == [["1g.5gb"]]


@pytest.mark.long("GPUs of other kinds are declared on every node first")
def test_two_types_on_a_node(cluster, engine):
    """Where a node has two types of GPU, and where a job asks for two, Slurm decides."""
    gres = DGX2 + ";s/\\(NodeName=dgx2.*\\)Type=v100\\(.*fakegpu[4-7]\\)/\\1Type=t4\\2/"
    with other_gpus(cluster, "s/gpu:v100:8/gpu:v100:4,gpu:t4:4/", gres):
        assert_unasked(cluster, engine, "-w", "dgx2", "--gres=gpu:2")
        assert_unasked(cluster, engine, "-w", "dgx2", "--gres=gpu:v100:1,gpu:t4:1")


@pytest.mark.long("GPUs of other kinds are declared on every node first")
def test_slurmd_counts_the_types_in_slurm_confs_order(cluster):
    """Whatever stands first in gres.conf: what `gputopo doctor` warns of where the two differ."""
    gres = DGX2 + ";s/\\(NodeName=dgx2.*\\)Type=v100\\(.*fakegpu[4-7]\\)/\\1Type=t4\\2/"
    with other_gpus(cluster, "s/gpu:v100:8/gpu:t4:4,gpu:v100:4/", gres):
        jobid = cluster.sbatch("-w", "dgx2", "--gres=gpu:t4:4", sleep_s=30)
        assert cluster.wait_running(jobid).gpus == {"dgx2": (0, 1, 2, 3)}
        devices = "scontrol show node dgx2 | grep -o ' *Gres=[^ ]*'"
        assert cluster.run("ctl", devices).out.strip().startswith("Gres=gpu:t4:4")


@pytest.mark.long("GPUs of other kinds are declared on every node first")
def test_shards(cluster, engine):
    """The GPU that shards are of is chosen, and is not free for others."""
    gres = "$a NodeName=dgx2 Name=shard Count=32"
    with other_gpus(cluster, "s/gpu:v100:8/gpu:v100:8,shard:32/", gres):
        jobid = cluster.started("-w", "dgx2", "--gres=shard:2", sleep_s=30).id
        asked = engine.questions(jobid)[0]
        assert (asked["shared"], asked["shares"]) == (["shard"], ["2"])
        assert asked["node"] == ["dgx2/8/ff/1/1/ff/4,4,4,4,4,4,4,4"]
        assert cluster.visible_gpus(jobid) == (6,)
        spread = "s/^SelectTypeParameters=.*/&,LL_SHARED_GRES/"
        cluster.run("ctl", ["sed", "-i", spread, "/cluster/slurm.conf"])
        cluster.restart_slurmctld()
        assert_unasked(cluster, engine, "-w", "dgx2", "--gres=shard:1")
        clear(cluster)
        cluster.started("-w", "dgx2", "--gres=shard:2", sleep_s=30)
        jobid = cluster.sbatch("-w", "dgx2", "--gres=gpu:2", sleep_s=30)
        gpus = cluster.wait_running(jobid).gpus["dgx2"]
        free = int(engine.questions(jobid)[0]["node"][0].split("/")[2], 16)
        assert free.bit_count() == 7
        assert all(free >> gpu & 1 for gpu in gpus)
        assert gpus == tuple(sorted([gpu for gpu in (6, 3, 5) if free >> gpu & 1][:2]))
