"""What the select plugin tells the engine of all nodes: once, and then what changed."""

import re

import pytest
from select_harness import PREFER, SWITCH, FakeEngine, clear

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until

pytestmark = [pytest.mark.cluster, pytest.mark.select_plugin]

NODES = 5


@pytest.fixture
def engine(engine: FakeEngine) -> FakeEngine:
    """The scripted engine, by preference."""
    engine.rule(**PREFER)
    return engine


def asked(cluster: Cluster, engine: FakeEngine, *args: str) -> dict[str, list[str]]:
    """The question about a job that starts and stays, each key with its values."""
    job = cluster.started(*args, sleep_s=300)
    return engine.questions(job.id)[-1]


def changed(question: dict[str, list[str]]) -> dict[int, int]:
    """Free GPUs by the node's place in the table."""
    pairs = [text.split(":") for text in question["changed"][0].split(",")]
    return {int(index): int(free, 16) for index, free in pairs}


def place_of(engine: FakeEngine, node: str) -> int:
    """Where the node stands in the table."""
    names = engine.nodes_lines()[-1]["names"].split(",")
    return names.index(node)


def test_a_start_tells_all_nodes_and_an_engine_that_starts_again_too(cluster, engine):
    """Name, GPUs, weight and type of each; within half a second where the engine came back."""
    before = len(engine.tables())
    cluster.restart_slurmctld()
    engine.wait_for_table(before)
    (table,) = [line for line in engine.nodes_lines() if line["table"] == engine.tables()[-1]]
    names = table["names"].split(",")
    assert sorted(names) == ["amd1", "bridged1", "dgx1", "dgx2", "minsky1"]
    per_node = {key: table[key].split(",") for key in ("total", "type", "free", "weight")}
    assert [per_node["total"][names.index(n)] for n in ("dgx1", "minsky1")] == ["8", "4"]
    assert per_node["type"][names.index("dgx1")] == "v100"
    assert per_node["weight"] == ["1"]
    engine.stop()
    engine.start()
    engine.wait_for_table(0)
    question = asked(cluster, engine, "-p", "gpu", "--gres=gpu:v100:2")
    assert question["table"] == engine.tables()[-1:]
    assert sorted(engine.candidates(question)) == ["dgx1", "dgx2"]


def test_starts_and_ends_are_told_once(cluster, engine):
    """A job's nodes are in the question after its start and after its end, until it is answered."""
    engine.settle()
    first = cluster.started("-w", "dgx1", "--gres=gpu:3", sleep_s=300)
    taken = sum(1 << gpu for gpu in first.gpus["dgx1"])
    # a job that asks for its node is about that node alone, and tells nothing
    assert "table" not in engine.questions(first.id)[-1]
    question = asked(cluster, engine, "--gres=gpu:v100:1")
    assert changed(question)[place_of(engine, "dgx1")] == 0xFF & ~taken
    second = asked(cluster, engine, "--gres=gpu:v100:1")
    # the job before it, and nothing else
    assert len(changed(second)) == 1
    cluster.cancel(first.id)
    cluster.wait_finished(first.id)
    third = asked(cluster, engine, "--gres=gpu:v100:1")
    assert changed(third)[place_of(engine, "dgx1")] & taken == taken


def test_an_engine_that_lost_count_gets_the_table_again(cluster, engine):
    """resync=1 in a reply; what it answers about Slurm's own nodes is used all the same."""
    asked(cluster, engine, "--gres=gpu:v100:1")
    before = len(engine.tables())
    engine.rule(**PREFER, resync=True)
    assert cluster.started("--gres=gpu:v100:1", sleep_s=300).gpus
    engine.wait_for_table(before)
    engine.rule(**PREFER)
    question = asked(cluster, engine, "--gres=gpu:v100:1")
    assert sorted(engine.candidates(question)) == ["dgx1", "dgx2"]
    assert question["table"] == engine.tables()[-1:]


@pytest.mark.parametrize(
    "advice",
    [{"dgx1": [0]}, {"dgx9": [0]}],
    ids=["a GPU in use", "a node of another name"],
)
def test_an_engine_that_names_what_is_not_to_be_had_gets_the_table_again(cluster, engine, advice):
    """Though table and digest are the same: it would be wrong again with each job otherwise."""
    cluster.occupy("dgx1", [0])
    asked(cluster, engine, "--gres=gpu:v100:1")
    before = len(engine.tables())
    engine.rule(do="use", nodes=advice)
    job = cluster.started("--gres=gpu:v100:1", sleep_s=300)
    assert "table" in engine.questions(job.id)[-1]
    assert job.gpus not in ({"dgx1": (0,)}, {"dgx9": (0,)})
    engine.rule(**PREFER)
    engine.wait_for_table(before)
    question = asked(cluster, engine, "--gres=gpu:v100:1")
    assert sorted(engine.candidates(question)) == ["dgx1", "dgx2"]


def test_an_engine_without_the_verb_is_asked_about_slurms_nodes(cluster, engine):
    """One line in the log, and jobs are placed on the nodes that Slurm chose."""
    with cluster.slurmctld_log_of() as log:
        engine.rule(**PREFER, nodes="refuse")
        engine.settle(told=False)
        until(lambda: len(engine.lines("nodes")) > 1, "a table is refused twice")
        job = cluster.started("--gres=gpu:v100:2", sleep_s=300)
    assert list(job.gpus.values()) == [(3, 6)]
    assert engine.asked_nodes(job.id) == list(job.gpus)
    assert sum("did not take the table of nodes: no;" in line for line in log) == 1
    engine.rule(**PREFER)
    # The table that it takes may have come with the job's start.
    until(
        lambda: len(engine.candidates(asked(cluster, engine, "--gres=gpu:v100:1"))) == 2,
        "the engine takes a table",
        60,
    )


def test_a_drained_node_is_no_candidate_until_it_is_resumed(cluster, engine):
    """The table stays: what Slurm offers is said with each question."""
    table = engine.tables()
    cluster.run("ctl", "scontrol update nodename=dgx2 state=drain reason=test")
    try:
        question = asked(cluster, engine, "--gres=gpu:1")
        assert sorted(engine.candidates(question)) == ["amd1", "bridged1", "dgx1", "minsky1"]
    finally:
        cluster.run("ctl", "scontrol update nodename=dgx2 state=resume")
    until(
        lambda: "dgx2" in engine.candidates(asked(cluster, engine, "--gres=gpu:1")),
        "dgx2 is offered again",
    )
    assert engine.tables() == table


def test_another_weight_is_another_table(cluster, engine):
    """Whatever differs but free GPUs: a look at the node finds it, and the table is sent anew."""
    before = len(engine.tables())
    weigh = "scontrol update nodename=dgx2 weight="
    cluster.run("ctl", weigh + "7")
    try:
        asked(cluster, engine, "--gres=gpu:v100:1")
        engine.wait_for_table(before)
        names, weights = (engine.nodes_lines()[-1][key].split(",") for key in ("names", "weight"))
        assert [w for n, w in zip(names, weights, strict=True) if n == "dgx2"] == ["7"]
        question = asked(cluster, engine, "--gres=gpu:v100:1")
        assert question["heaviest"] == ["1"]
        assert engine.candidates(question) == ["dgx1"]
    finally:
        before = len(engine.tables())
        cluster.run("ctl", weigh + "1")
        asked(cluster, engine, "--gres=gpu:v100:1")
        engine.wait_for_table(before)


def test_the_kill_switch_silences_the_table_too(cluster, engine):
    """Nothing is sent while it is set; afterwards all of it, with what happened meanwhile."""
    until(lambda: engine.connections(), "the plugin's thread is there")
    before = engine.connections()
    cluster.run("ctl", f"touch {SWITCH}")
    try:
        until(lambda: engine.connections() < before, "the plugin's thread has hung up")
        told = engine.tables()
        first = cluster.started("-w", "dgx1", "--gres=gpu:8", sleep_s=300)
        assert engine.questions(first.id) == []
        assert engine.tables() == told
    finally:
        cluster.run("ctl", f"rm -f {SWITCH}")

    def is_told_anew() -> bool:
        # of one node alone: nobody asks for the table
        cluster.wait_finished(cluster.sbatch("-w", "minsky1", "--gres=gpu:1", script="true"))
        return len(engine.tables()) > len(told)

    until(is_told_anew, "a job elsewhere has all nodes told anew")
    busy = place_of(engine, "dgx1")
    assert engine.nodes_lines()[-1]["free"].split(",")[busy] == "0"
    clear(cluster)


def test_the_counters_tell_the_plugins_own_time(cluster, engine):
    """Without the answer and Slurm's selections it is less than what a start took longer."""
    engine.settle(stats_every_starts=1)
    engine.rule(do="slow", ms=100, then=PREFER)
    with cluster.slurmctld_log_of() as log:
        asked(cluster, engine, "--gres=gpu:v100:1")
    text = next(line for line in log if "gputopo: stats" in line)
    figures = dict(re.findall(r"(\w+_us_m\w+)=(\d+)", text))
    assert int(figures["added_us_max"]) >= 100_000
    assert 0 < int(figures["own_us_max"]) < 50_000
    assert int(figures["own_us_median"]) <= int(figures["own_us_max"])


def test_a_flexible_reservation_keeps_its_jobs_inside(cluster, engine):
    """What is outside of it has the same Weight; Slurm tells them apart node by node."""
    reserve = "reservationname=flex users=alice starttime=now duration=10 nodes=dgx[1-2] flags=flex"
    create = f"scontrol create reservation {reserve}"
    until(lambda: not cluster.run("ctl", create, check=False).code, "the reservation is made")
    try:
        question = asked(cluster, engine, "--reservation=flex", "--gres=gpu:1")
        assert sorted(engine.candidates(question)) == ["dgx1", "dgx2"]
        assert "heaviest" not in question
    finally:
        clear(cluster)
        cluster.run("ctl", "scontrol delete reservationname=flex")
