"""From Slurm's queue to the plan, and from the plan to what is changed in Slurm."""

from dataclasses import replace
from pathlib import Path

import pytest
from genie_in_tests import HINT, NOW, a_node, a_shaping, queued, running
from hypothesis import given
from hypothesis import strategies as st

from policies.contract.scheduling import Task
from policies.performance import Shape
from slurm_plugin.act.gates.slot_request import recorded_demand
from slurm_plugin.act.genie.changes import LEAST, MOST, Changes, changes, released, site_factors
from slurm_plugin.act.genie.domain_snapshot import DomainSnapshot, domain_snapshot, planned
from slurm_plugin.act.genie.shaping import Shaping
from slurm_plugin.act.genie.site import ShapedPartition
from slurm_plugin.base.job_notes.records import GateRecord
from slurm_plugin.base.job_notes.shape import ShapeNote, shape_note_in
from slurm_plugin.slurm.clients.update_text import words
from slurm_plugin.slurm.interface import NOW as AT_ONCE
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob, SlurmNode

FREE = [a_node("dgx1"), a_node("dgx2")]
FULL = [a_node("dgx1", 8), a_node("dgx2", 8)]
ALL = running(1, {"dgx1": tuple(range(8)), "dgx2": tuple(range(8))})


@pytest.fixture
def shaping(tmp_path: Path) -> Shaping:
    return a_shaping(tmp_path)


def seen(shaping: Shaping, jobs: list[QueuedJob], nodes: list[SlurmNode]) -> DomainSnapshot:
    def task_of(job: QueuedJob, said: ShapeNote, domain: ShapedPartition) -> Task:
        hint = job.admin_comment.partition(": ")[2].partition(" |")[0]
        values = dict(word.split("=") for word in hint.split(","))
        return shaping.site.task(job.job_id, values, domain, "", said, NOW)[1]

    return domain_snapshot(shaping.site.domains["dl"], jobs, nodes, NOW, task_of)


def made(
    shaping: Shaping, jobs: list[QueuedJob], nodes: list[SlurmNode], **more: object
) -> Changes:
    snapshot = seen(shaping, jobs, nodes)
    plans = planned(shaping.scheduler, snapshot.queue(NOW, []), is_settling=snapshot.is_settling)
    return changes(snapshot, plans, {}, now=NOW, **more)


# The bracket.


@pytest.mark.parametrize(
    "said",
    [
        ShapeNote(Shape(2, 4)),
        ShapeNote(None, is_held=True, nodes=2, max_nodes=3),
        ShapeNote(Shape(1, 1), is_fixed=True, token="ab12", tasks=4, tasks_per_node=2),
    ],
)
def test_the_bracket_is_read_as_it_was_written(said):
    assert shape_note_in(f"site's [gpu-topo: x | y] {said.text()} [gpu-slots: gated]") == said


@pytest.mark.parametrize("text", ["", "[gpu-shape: ]", "[gpu-shape: 0x3]", "[gpu-shape: big]"])
def test_another_text_is_no_bracket(text):
    assert shape_note_in(text) is None


def test_a_bracket_is_replaced_where_it_stands():
    before = "[gpu-topo: x] [gpu-shape: 1x1 t=a] [gpu-slots: gated]"
    after = ShapeNote(Shape(2, 2), token="a").written_into(before)
    assert after == "[gpu-topo: x] [gpu-shape: 2x2 t=a] [gpu-slots: gated]"


# What a look sees.


def test_free_gpus_are_those_of_nodes_that_take_jobs(shaping):
    nodes = [a_node("dgx1", 3), a_node("dgx2", 0, "IDLE", "DRAIN"), a_node("minsky1")]
    assert seen(shaping, [], nodes).free == {"dgx1": 5, "dgx2": 0}


@pytest.mark.parametrize(
    "more",
    [
        {"priority": 0},
        {"dependency": "afterok:9(unfulfilled)"},
        {"reason": "BeginTime", "eligible": int(NOW) + 999},
        {"reason": "QOSMaxJobsPerUserLimit"},
        {"partition": "gpu"},
    ],
    ids=str,
)
def test_jobs_that_could_not_start_are_not_planned(shaping, more):
    assert seen(shaping, [queued(7, **more)], FREE).members == []


def test_running_jobs_end_when_predicted(shaping):
    (one,) = seen(shaping, [running(1, {"dgx1": (0, 1)})], FREE).running
    assert one.shape == Shape(1, 2)
    assert one.end_s - NOW == pytest.approx(204, abs=3)


def test_a_job_that_ended_while_slurm_was_read_still_has_its_gpus(shaping):
    """The queue was read before the end, the nodes after it."""
    there = running(1, {"dgx1": (0, 1, 2, 3)})
    assert seen(shaping, [there], [a_node("dgx1"), a_node("dgx2", 2)]).free["dgx1"] == 4
    assert seen(shaping, [there], [a_node("dgx1", 4), a_node("dgx2", 2)]).free["dgx1"] == 4
    begun_since = seen(shaping, [there], [a_node("dgx1", 7), a_node("dgx2", 2)])
    assert begun_since.free == {"dgx1": 1, "dgx2": 6}


def test_while_a_jobs_gpus_come_back_nobody_is_started_on_a_part_of_them(shaping):
    ending = queued(1, "2x8", state="COMPLETING", nodes=("dgx1", "dgx2"), end=int(NOW) - 1)
    assert (
        made(shaping, [ending, queued(7, "1x1")], [a_node("dgx1"), a_node("dgx2", 8)]).updates == []
    )
    stuck = queued(1, "2x8", state="COMPLETING", nodes=("dgx1", "dgx2"), end=int(NOW) - 60)
    assert made(shaping, [stuck, queued(7, "1x1")], [a_node("dgx1"), a_node("dgx2", 8)]).updates


def test_a_job_that_was_given_its_slots_counts_as_running_on_them(shaping):
    """Slurm takes a moment to start it, and does not count its GPUs until then."""
    given = queued(
        7,
        "1x2",
        tres_per_node="gres/gpu:v100.s0:1,gres/gpu:v100.s1:1",
        req_nodes="dgx1",
        admin_comment=f"[gpu-topo: {HINT} | x] [gpu-shape: 1x2] [gpu-slots: placed tpn=gpu:2]",
    )
    found = seen(shaping, [given], FREE)
    assert (found.free, found.members) == ({"dgx1": 6, "dgx2": 8}, [])
    (one,) = found.running
    assert (one.job_id, one.shape) == (7, Shape(1, 2))
    assert one.end_s - NOW == pytest.approx(204, abs=3)


# What is changed.


def test_a_waiting_job_that_is_to_start_gets_its_shape(shaping):
    ((job, update),) = made(shaping, [queued(7, "1x1")], FREE).updates
    assert job.name == "7"
    assert (update.num_nodes, update.tres_per_node, update.num_tasks) == ((1, 1), "gres/gpu:4", 4)
    assert update.admin_comment == f"[gpu-topo: {HINT} | shape 1x4] [gpu-shape: 1x4]"


def test_slurm_refuses_the_update_of_a_job_that_has_started(shaping):
    """By its CPUs, before it would take nodes away from it."""
    ((_, update),) = made(shaping, [queued(7, "1x1")], FREE).updates
    told = words(["7"], update, "/")
    assert "NumCPUs=4" in told
    assert "MinCPUsNode=4" in told


def test_a_job_that_waits_keeps_a_shape_that_is_still_good(shaping):
    assert made(shaping, [ALL, queued(7, "1x2")], FULL).updates == []


def test_a_job_that_waits_gets_another_shape_once_its_own_would_be_late(shaping):
    hint = f"{HINT},deadline=180s"
    ((_, update),) = made(shaping, [ALL, queued(7, "1x1", hint)], FULL).updates
    assert update.tres_per_node == "gres/gpu:4"


@pytest.mark.parametrize(
    "job",
    [
        queued(7, "1x1", words=" fixed"),
        queued(7, "1x1", array_id=7),
        queued(7, "1x1", tres_per_node="gres/gpu:3"),
        queued(7, "1x1", min_nodes=2, max_nodes=2),
        queued(7, "1x1", het_id=7),
    ],
    ids=["fixed", "array", "the user changed its GPUs", "the user changed its nodes", "component"],
)
def test_shapes_that_are_not_ours_are_left(shaping, job):
    assert made(shaping, [job], FREE).updates == []


GATED = "gated token=t0 tpn=gres/gpu:1 nodes=1-1 by=node"


def behind(state: str = GATED, **more: object) -> QueuedJob:
    """A waiting job of the slots mode."""
    shaped = f"[gpu-topo: {HINT} | waits for 1 free GPU on one node] [gpu-shape: 1x1]"
    return queued(7, "1x1", admin_comment=f"{shaped} [gpu-slots: {state}]", **more)


def test_behind_a_gate_the_request_in_the_bracket_is_changed_too(shaping):
    """By it the job's slots are looked for, and the request is given back."""
    ((_, update),) = made(shaping, [behind()], FREE).updates
    assert (update.num_nodes, update.tres_per_node, update.num_tasks) == ((1, 1), "gres/gpu:4", 4)
    comment = update.admin_comment or ""
    assert "[gpu-shape: 1x4]" in comment
    assert "[gpu-slots: gated token=t0 tpn=gres/gpu:4 nodes=1-1 by=node]" in comment
    kept = GateRecord.read_from(comment)
    assert kept is not None
    asked = recorded_demand(replace(behind(), ntasks=4, admin_comment=comment), kept)
    assert (asked.gpus, asked.per_node, asked.nodes) == (4, 4, 1)


@pytest.mark.parametrize(
    "state",
    [GATED.replace("gated", "placed"), GATED.replace("gres/", "gres:"), f"{GATED} loan=dgx2/3"],
    ids=["has its slots", "Slurm 22.05", "waits for donors"],
)
def test_behind_a_gate_a_shape_stays_once_slots_are_given(shaping, state):
    """On 22.05 also before: there what a job asked and what it is to ask merge."""
    assert made(shaping, [behind(state)], FREE).updates == []


def test_never_above_what_the_user_allows(shaping):
    ((_, update),) = made(shaping, [queued(7, "1x1", words=" tasks=2")], FREE).updates
    assert update.tres_per_node == "gres/gpu:2"


def test_a_job_that_was_put_off_is_woken_when_its_turn_comes(shaping):
    until = int(NOW) + 60
    comment = f"[gpu-topo: {HINT} | waiting 1/10 since 5: genie: x (until {until}, begin 5)]"
    job = queued(
        7,
        "1x4",
        reason="BeginTime",
        eligible=int(NOW) + 60,
        admin_comment=f"{comment} [gpu-shape: 1x4]",
    )
    snapshot = domain_snapshot(
        shaping.site.domains["dl"],
        [job],
        FREE,
        NOW,
        lambda job, said, domain: seen(shaping, [queued(7, "1x4")], FREE).members[0].task,
        is_ours=lambda _: True,
    )
    plans = planned(shaping.scheduler, snapshot.queue(NOW, []))
    assert changes(snapshot, plans, {}, now=until).updates == []
    assert changes(snapshot, plans, {}, now=NOW).updates == [(job, JobUpdate(begin_time=AT_ONCE))]


def test_urgent_jobs_stand_before_normal_ones_that_came_first(shaping):
    jobs = [ALL, queued(7, "1x4"), queued(8, "1x4", f"{HINT},class=urgent", priority=1)]
    updates = made(shaping, jobs, FULL).updates
    assert [(job.job_id, update.site_factor) for job, update in updates] == [(8, 2)]


def test_a_job_of_the_time_without_an_engine_gets_its_shape_and_is_let_go():
    job = queued(7, admin_comment=f"[gpu-topo: {HINT} | held] [gpu-shape: none]", priority=0)
    update = released(job, ShapeNote(None), Shape(2, 4), "/")
    assert update.is_released
    own = released(job, ShapeNote(None, is_held=True), Shape(2, 4), "/")
    assert not own.is_released
    assert (own.num_nodes, own.num_tasks) == ((2, 2), 8)


# The order as site factors.


@pytest.mark.parametrize(
    ("order", "priority", "site", "factors"),
    [
        pytest.param([3, 1, 2], {3: 30, 1: 20, 2: 10}, {}, {}, id="the order is kept already"),
        pytest.param([1, 2], {1: 100, 2: 500}, {}, {1: 400, 2: -400}, id="they exchange theirs"),
        pytest.param([1, 2, 3], {1: 50, 2: 50, 3: 50}, {}, {2: -1, 3: -2}, id="equal: downwards"),
        pytest.param([1, 2, 3], {1: 3, 2: 3, 3: 3}, {}, {1: 1, 3: -1}, id="no room below"),
        pytest.param([1, 2, 3], {1: 1, 2: 1, 3: 1}, {}, {1: 3, 2: 2}, id="no weights"),
        pytest.param([1, 2], {1: 9, 2: 1}, {}, {}, id="shown at 1: has nothing to exchange"),
        pytest.param([2, 1], {1: 9, 2: 1}, {2: 8, 1: -3}, {1: 0, 2: 0}, id="pushed down since"),
        pytest.param([2, 1], {1: 500, 2: 100}, {1: 400, 2: -400}, {1: 0, 2: 0}, id="known ones"),
    ],
)
def test_the_order_as_site_factors(order, priority, site, factors):
    assert site_factors(order, priority, site) == factors


JOBS = st.dictionaries(
    st.integers(1, 99), st.tuples(st.integers(2, 10**6), st.integers(-50, 50)), min_size=1
)


@given(JOBS, st.randoms())
def test_slurm_then_has_that_order_and_nobody_gains_over_others(jobs, draw):
    order = list(jobs)
    draw.shuffle(order)
    base = {job: own for job, (own, _) in jobs.items()}
    site = {job: factor for job, (_, factor) in jobs.items() if base[job] + factor > LEAST}
    now = {job: base[job] + site.get(job, 0) for job in jobs}
    found = site_factors(order, now, site)
    after = [base[job] + found.get(job, site.get(job, 0)) for job in order]
    assert after == sorted(after, reverse=True)
    assert len(set(after)) == len(after)
    assert min(after) > LEAST
    assert all(abs(factor) <= MOST for factor in found.values())
    if found and min(base.values()) > len(base):
        assert all(
            one <= other
            for one, other in zip(after, sorted(base.values(), reverse=True), strict=True)
        )


class Multifactor:
    """Slurm's formula, and GENIE's factors from one poll to the next."""

    def __init__(self, computed: dict[int, int]) -> None:
        self.computed, self.nice, self.site = computed, dict.fromkeys(computed, 0), {}

    def shown(self, job: int) -> int:
        return max(1, self.computed[job] + self.site.get(job, 0) - self.nice[job])

    def poll(self, *order: int) -> list[int]:
        """The priorities that Slurm then shows of these jobs."""
        self.site |= site_factors(order, {job: self.shown(job) for job in order}, self.site)
        return [self.shown(job) for job in order]


@pytest.mark.parametrize("nice", [4_990, 6_000, 2**31 - 5])
def test_whoever_pushes_an_own_job_down_moves_nobody_elses(nice):
    slurm = Multifactor({1: 5000, 2: 4000, 3: 3000, 4: 2000})
    assert slurm.poll(4, 1, 2, 3) == [5000, 4000, 3000, 2000]
    slurm.nice[4] = nice
    for _ in range(5):
        slurm.poll(4, 1, 2, 3)
        assert slurm.shown(4) == 1
        assert [slurm.shown(job) for job in (1, 2, 3)] == [5000, 4000, 3000]
    slurm.nice[4] = 0
    slurm.poll(4, 1, 2, 3)
    assert slurm.poll(4, 1, 2, 3) == [5000, 4000, 3000, 2000]


def test_the_group_does_not_sink_as_its_jobs_start():
    slurm = Multifactor({job: 1000 * job for job in range(1, 9)})
    for first in range(1, 9):
        left = range(first, 9)
        assert slurm.poll(*left) == sorted((1000 * job for job in left), reverse=True)


@pytest.mark.parametrize("own", [0, 1])
def test_where_slurm_computes_nothing_the_order_holds_and_nobody_rises(own):
    slurm = Multifactor(dict.fromkeys(range(1, 5), own))
    for _ in range(2):
        slurm.poll(1, 2, 3, 4)
    slurm.nice[3] = 2**31 - 5
    for _ in range(5):
        found = slurm.poll(3, 1, 2, 4)
        assert found[1] > found[2] > found[3] >= 1
        assert max(found) <= 5
