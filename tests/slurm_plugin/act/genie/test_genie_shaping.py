"""What a submit of a shaped job is answered, and when a start is put off."""

from dataclasses import replace
from pathlib import Path

import pytest
from genie_in_tests import HINT, NOW, a_node, a_shaping, queued, running, submit
from machines_in_tests import BASIC, basic_decider, mask, node, question

from policies.performance import Shape
from slurm_plugin.act.enforcement import Select, Slots
from slurm_plugin.act.gates.capacity_cache import CapacityCache
from slurm_plugin.act.genie.domain_snapshot import domain_snapshot, planned
from slurm_plugin.act.genie.shaping import SCHEDULERS, Shaping
from slurm_plugin.act.lending.at_start.reservations import LoanReservations
from slurm_plugin.base.job_notes.shape import ShapeNote, shape_note_in
from slurm_plugin.base.protocol import Notice, Ok, Pass, Refuse, Submit, WaitFor
from slurm_plugin.queue.backfill import WaitingLine
from slurm_plugin.queue.capacity import Node
from slurm_plugin.queue.snapshot import Settings
from slurm_plugin.slurm.interface import QueuedJob, SlurmNode, SlurmPartition

V100 = tuple(f"v100.s{i}" for i in range(8))


@pytest.fixture
def shaping(tmp_path: Path) -> Shaping:
    return a_shaping(tmp_path)


def answered(shaping: Shaping, asked: Submit) -> dict[str, str]:
    reply = shaping.on_submit(asked)
    assert isinstance(reply, Ok), reply
    return dict(reply.values)


def refused(shaping: Shaping, asked: Submit) -> str:
    reply = shaping.on_submit(asked)
    assert isinstance(reply, Refuse), reply
    assert "\n" not in reply.message
    return reply.message


def polled(shaping: Shaping, jobs: list[QueuedJob], nodes: list[SlurmNode]) -> None:
    """As the loop does it."""
    domain = shaping.site.domains["dl"]

    def task_of(job: QueuedJob, said: ShapeNote, _: object) -> object:
        hint = dict(word.split("=") for word in HINT.split(","))
        return shaping.site.task(job.job_id, hint, domain, "", said, NOW)[1]

    snapshot = domain_snapshot(domain, jobs, nodes, NOW, task_of)
    shaping.snapshots["dl"] = snapshot
    shaping.plans["dl"] = planned(shaping.scheduler, snapshot.queue(NOW, []))
    shaping.events_seen = shaping.events


EMPTY = [a_node("dgx1"), a_node("dgx2")]


def test_a_job_gets_the_shape_of_the_highest_ratio_one_task_per_gpu(shaping):
    values = answered(shaping, submit())
    comment = values.pop("set.admin_comment")
    assert values == {
        "set.tres_per_node": "gres/gpu:4", "set.min_nodes": "1", "set.max_nodes": "1",
        "set.num_tasks": "4", "set.min_cpus": "4", "set.pn_min_cpus": "4",
    }  # fmt: skip
    assert comment.startswith(f"[gpu-topo: {HINT} | shape 1x4] [gpu-shape: 1x4 t=")
    said = shape_note_in(comment)
    assert (said.shape, said.is_fixed) == (Shape(1, 4), False)


def test_it_takes_the_best_shape_that_fits_now(shaping):
    polled(shaping, [], [a_node("dgx1", 6), a_node("dgx2", 5)])
    assert answered(shaping, submit())["set.tres_per_node"] == "gres/gpu:3"


def test_a_second_submit_knows_what_the_first_was_promised(shaping):
    polled(shaping, [], [a_node("dgx1", 4), a_node("dgx2", 6)])
    shapes = [answered(shaping, submit())["set.tres_per_node"] for _ in range(2)]
    assert shapes == ["gres/gpu:4", "gres/gpu:2"]


@pytest.mark.parametrize(
    ("given", "shape", "tasks"),
    [
        ({"nodes": 2}, "2x2", "4"),
        ({"nodes": 2, "tasks_per_node": 1}, "2x2", "2"),
        ({"tasks": 3}, "1x3", "3"),
        ({"tasks": 4, "tasks_per_node": 2}, "2x2", "4"),
        ({"cpus_per_task": 3}, "1x4", "4"),
    ],
)
def test_what_the_user_gave_beside_is_kept(shaping, given, shape, tasks):
    values = answered(shaping, submit(**given))
    nodes, gpus = shape.split("x")
    assert (values["set.min_nodes"], values["set.tres_per_node"]) == (nodes, f"gres/gpu:{gpus}")
    assert values["set.num_tasks"] == tasks
    cpus = int(tasks) // int(nodes) * given.get("cpus_per_task", 1)
    assert values["set.pn_min_cpus"] == str(cpus)


def test_gpus_the_user_asked_for_are_left_as_they_are(shaping):
    asked = replace(submit(), shape=0, gpus=2, per_node=2, nodes=1, tasks=1)
    values = answered(shaping, asked)
    assert list(values) == ["set.admin_comment"]
    said = shape_note_in(values["set.admin_comment"])
    assert (said.shape, said.is_fixed) == (Shape(1, 2), True)


def changed(word: str) -> Submit:
    """The usual submit, with this word in place of that of its key."""
    words = dict(pair.split("=") for pair in f"{HINT},{word}".split(","))
    return submit(",".join(f"{key}={value}" for key, value in words.items()))


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (changed("batch=0"), "batch: '0'; expected a whole number from 1"),
        (changed("iterations=-5"), "iterations: '-5'; expected a whole number"),
        (changed("profile=zzz"), "profile: no profile 'zzz' for training; expected one of resnet"),
        (changed("batch=4096"), "batch: batch 4096 of resnet50 fits no shape of up to 2x8 GPUs"),
        (changed("class=vip"), "class: 'vip'; expected urgent, prior, normal"),
        (changed("deadline=2020-01-01T00:00Z"), "deadline: 2020-01-01T00:00Z has passed"),
        (submit(f"{HINT},class=urgent", account="guests"),
         "class: 'urgent' is not for this job; expected normal"),
        (submit(f"{HINT},class=prior", partition="strict"), "expected normal"),
        (submit(f"{HINT},class=urgent", partition="plain"), "expected normal"),
        (submit(f"{HINT},deadline=10m", partition="plain"),
         "deadline: in 0.17 h; expected 0.22 h or more, which class normal may take"),
        (submit(f"{HINT},class=urgent,deadline=10s", partition="tight"),
         "deadline: cannot be done in time:"),
        (submit(partition="elsewhere"), "does not shape the jobs of partition elsewhere"),
        (submit("policy=genie,profile=resnet50"), "batch: missing; policy=genie needs profile"),
        (submit(nodes=9), "shape: none has 9 nodes; expected at most 2x8"),
        (submit(tasks=17), "shape: none has 17 tasks"),
        (submit(batch=False), "shape of batch jobs; give srun and salloc their GPUs"),
        (replace(submit(), shape=0, gpus=17, per_node=17, nodes=1), "shape: 17 GPUs; expected"),
    ],
)  # fmt: skip
def test_what_is_wrong_or_forbidden_is_refused_in_one_line(shaping, asked, says):
    said = refused(shaping, asked)
    assert said.startswith("gpu-topo: ")
    assert says in said


def test_a_job_that_will_be_late_is_let_in_with_a_notice(shaping):
    values = answered(shaping, submit(f"{HINT},deadline=10s"))
    assert values["message"].startswith("gpu-topo: cannot be done in time: 0.03 h on the fastest")
    assert values["set.min_nodes"] == "1"


def test_a_profile_that_stands_in_is_named(shaping):
    values = answered(shaping, submit(HINT.replace("resnet50", "resnet101")))
    assert "resnet101 was never profiled; resnet50 stands in" in values["message"]


def test_a_job_that_is_shaped_borrows_nothing_and_its_user_reads_why(shaping, tmp_path):
    decider = basic_decider(tmp_path, BASIC + "remote: {{allow: yes}}\n")
    lends = replace(shaping, inner=Select(decider, LoanReservations()))
    values = answered(lends, submit(f"{HINT},remote=allow"))
    assert "GPUs of other nodes are not lent to this job: policy=genie plans" in values["message"]
    assert "env.GPUTOPO_REMOTE" not in values
    assert "loan" not in values["set.admin_comment"]
    assert "not lent" not in answered(lends, submit()).get("message", "")
    plain = replace(submit("policy=genie,remote=allow"), shape=0, gpus=4, per_node=4, nodes=1)
    assert answered(lends, plain)["env.GPUTOPO_REMOTE"] == "allow"


def test_hints_of_other_policies_are_none_of_its_business(shaping):
    assert isinstance(shaping.on_submit(submit("pattern=ring")), Pass)
    placed = replace(submit("policy=genie,pattern=tree"), shape=0, gpus=2, per_node=2, nodes=1)
    values = answered(shaping, placed)
    assert values["set.admin_comment"] == "[gpu-topo: policy=genie,pattern=tree]"


def test_nothing_is_shaped_where_nothing_is_enforced(shaping):
    assert isinstance(shaping.on_submit(submit(partition="watched")), Pass)


def test_a_new_hint_keeps_the_shape(shaping):
    asked = replace(submit(f"{HINT},class=prior"), shape=0, change=1, gpus=4, per_node=4, nodes=1)
    values = answered(shaping, asked)
    assert values["set.admin_comment"] == f"[gpu-topo: {HINT},class=prior]"
    assert "batch: '0'" in refused(shaping, replace(asked, hint=f"{HINT[:-16]},batch=0"))


def test_the_record_has_the_candidates_with_latency_cost_and_ratio(shaping):
    answered(shaping, submit())
    (build,) = shaping.records.values()
    line = build()
    assert (line.decision, line.shape, line.uid) == ("shape", "1x4", 1000)
    best = line.shapes[0]
    assert (best.shape, best.in_time) == ("1x4", True)
    assert best.cost == pytest.approx(0.45)
    assert best.ratio == pytest.approx(64 * 1000 / best.latency_s / 0.45, rel=1e-3)
    assert line.deadline == pytest.approx(NOW + 2 * 400, abs=5)


# The start.


def start(shaping: Shaping, job: int, *nodes: object, **more: object) -> object:
    values: dict[str, object] = {"job": job, "partition": "dl", "hint": HINT, **more}
    decision = shaping.on_place(question(*nodes, **values))
    return decision.reply if decision.reason == "waits by plan" else None


FOUR = node("dgx1", 0xFF, mask(0, 1, 2, 3))


def test_a_job_that_the_plan_starts_may_start_and_one_that_is_to_have_another_shape_waits(shaping):
    polled(shaping, [queued(7, "1x4")], EMPTY)
    assert start(shaping, 7, FOUR) is None
    polled(shaping, [queued(7, "1x2")], EMPTY)
    assert isinstance(start(shaping, 7, node("dgx1", 0xFF, mask(0, 1))), WaitFor)


@pytest.mark.parametrize(("algorithm", "starts"), [("genie", "1x3"), ("genie-paper", "")])
def test_as_printed_a_job_waits_for_the_best_of_its_shapes_beside_idle_gpus(
    shaping, algorithm, starts
):
    shaping.scheduler = SCHEDULERS[algorithm]
    polled(shaping, [queued(7, "1x4")], [a_node("dgx1", 5), a_node("dgx2", 8)])
    _, plan = shaping.plans["dl"][7]
    assert (str(plan.shape) if plan.nodes else "") == starts


def test_one_that_others_go_before_waits(shaping):
    full = [running(1, {"dgx1": tuple(range(8)), "dgx2": tuple(range(8))})]
    polled(shaping, [*full, queued(7, "1x4")], [a_node("dgx1", 8), a_node("dgx2", 8)])
    reply = start(shaping, 7, FOUR)
    assert isinstance(reply, WaitFor)
    assert reply.note == "genie: others go first"
    shaping.events += 1
    reply = start(shaping, 7, FOUR)
    assert isinstance(reply, WaitFor)
    assert reply.note == "genie: the queue is planned anew"


def test_a_job_no_look_has_seen_starts_if_its_submit_was_told_so(shaping):
    polled(shaping, [], EMPTY)
    answered(shaping, submit())
    assert start(shaping, 99, FOUR) is None
    polled(shaping, [], [a_node("dgx1", 8), a_node("dgx2", 8)])
    shaping.promises.clear()
    answered(shaping, submit())
    assert isinstance(start(shaping, 99, FOUR), WaitFor)


@pytest.mark.parametrize(
    "more", [{"partition": "gpu"}, {"hint": "pattern=ring"}, {"hint": ""}], ids=str
)
def test_other_jobs_are_not_held_back(shaping, more):
    polled(shaping, [queued(7, "1x2")], [a_node("dgx1", 8), a_node("dgx2", 8)])
    assert start(shaping, 7, FOUR, **more) is None


@pytest.mark.parametrize(
    ("hint", "may_set", "is_held"),
    [
        pytest.param("policy=genie", None, True, id="iterations by the partition's rule"),
        pytest.param("policy=mapa", None, False, id="a policy that reads none"),
        pytest.param("off,xiterations=1", None, False, id="no such key"),
        pytest.param(HINT, ("pattern",), False, id="refused by the rule"),
    ],
)
def test_a_start_is_held_back_by_what_the_hint_means(shaping, hint, may_set, is_held):
    """A rule's own hints count as at the submit, and text that only looks like a hint does not."""
    rule = replace(shaping.rule("dl"), hints={"iterations": "1000"}, users_may_set=may_set)
    shaping.rule = lambda *_: rule
    polled(shaping, [queued(7, "1x2")], [a_node("dgx1", 8), a_node("dgx2", 8)])
    assert isinstance(start(shaping, 7, FOUR, hint=hint), WaitFor) is is_held


def test_nothing_is_held_back_on_old_figures(shaping):
    """Where Slurm is slow a look may take longer than looks should be apart."""
    polled(shaping, [queued(7, "1x2")], [a_node("dgx1", 8), a_node("dgx2", 8)])
    shaping.clock = lambda: NOW + 60
    assert start(shaping, 7, FOUR) is None
    shaping.poll_took_s = 25.0
    assert isinstance(start(shaping, 7, FOUR), WaitFor)


# A plan is kept until it is carried out.


def committed(shaping: Shaping, *jobs: QueuedJob, nodes: list[SlurmNode] = EMPTY) -> set[int]:
    """A look that lets start what it can; who is about to start then."""
    polled(shaping, list(jobs), nodes)
    shaping.admit(shaping.plans["dl"], shaping.clock())
    return set(shaping.under_way(shaping.snapshots["dl"], shaping.clock())[0])


def test_gpus_of_a_job_that_is_about_to_start_are_not_planned_again(shaping):
    one_left = [a_node("dgx1", 4), a_node("dgx2", 8)]
    assert committed(shaping, queued(7, "1x4"), nodes=one_left) == {7}
    values = answered(shaping, submit())
    promise = next(iter(shaping.promises.values()))
    assert promise.nodes == ()
    assert values["set.tres_per_node"] == "gres/gpu:4"


def test_a_job_that_did_not_start_lets_others_go_first_for_longer_and_longer(shaping):
    clock = [NOW]
    shaping.clock = lambda: clock[0]
    assert committed(shaping, queued(7, "1x4")) == {7}
    clock[0] += 5
    starting, stalled = shaping.under_way(shaping.snapshots["dl"], clock[0])
    assert (starting, stalled) == ({}, {7})
    clock[0] += 10
    assert shaping.under_way(shaping.snapshots["dl"], clock[0])[1] == frozenset()
    shaping.admit(shaping.plans["dl"], clock[0])
    assert shaping.starting[7].pause == 20


def test_a_job_has_its_time_to_begin_from_when_slurm_was_told(shaping):
    """Slurm may be slow to take the updates of a look."""
    clock = [NOW]
    shaping.clock = lambda: clock[0]
    polled(shaping, [queued(7, "1x4")], EMPTY)
    assert shaping.admit(shaping.plans["dl"], NOW) == [7]
    clock[0] += 5
    shaping.slurm_knows([7, 8], clock[0])
    assert set(shaping.under_way(shaping.snapshots["dl"], NOW + 8)[0]) == {7}
    assert shaping.under_way(shaping.snapshots["dl"], NOW + 10)[1] == {7}


def test_what_others_take_is_known_before_the_next_look(shaping):
    polled(shaping, [], EMPTY)
    shaping.on_start(Notice("started", 50, 0, {"dgx1": 0xFF, "dgx2": 0x3F, "minsky1": 0xF}))
    assert shaping.snapshots["dl"].free == {"dgx1": 0, "dgx2": 2}
    assert answered(shaping, submit())["set.tres_per_node"] == "gres/gpu:2"


# On stock Slurm.


def slots(folder: Path, free: int) -> Slots:
    partitions = frozenset({"dl"})
    room = {
        name: Node(name, V100, free, 40, 100_000, partitions=partitions, sockets=(0x0F, 0xF0))
        for name in ("dgx1", "dgx2")
    }
    cache = CapacityCache(settings=Settings((SlurmPartition("dl", (), True),)))
    cache.update(room, (), WaitingLine(), NOW)
    return Slots(basic_decider(folder), cache, 120, clock=lambda: NOW, token=lambda: "t0")


def test_in_the_slots_mode_the_shape_becomes_exact_slots(shaping, tmp_path):
    polled(shaping, [], EMPTY)
    values = answered(replace(shaping, inner=slots(tmp_path, 0xFF)), submit())
    assert values["set.tres_per_node"].count("gres/gpu:v100.s") == 4
    assert (values["set.num_tasks"], values["set.pn_min_cpus"]) == ("4", "4")
    topo, shape, state = values["set.admin_comment"].split("] ")
    assert topo.startswith(f"[gpu-topo: {HINT} | dgx1:")
    assert shape.startswith("[gpu-shape: 1x4 t=")
    assert state.startswith("[gpu-slots: placed token=t0 tpn=gres/gpu:4 nodes=1-1")


def test_in_the_slots_mode_a_job_without_room_waits_behind_its_gate_with_its_shape(
    shaping, tmp_path
):
    values = answered(replace(shaping, inner=slots(tmp_path, 0)), submit())
    assert values["set.tres_per_node"] == "gres/gpu:4"
    assert values["set.begin_time"] == str(int(NOW) + 120)
    assert "[gpu-slots: gated token=t0 tpn=gres/gpu:4 nodes=1-1" in values["set.admin_comment"]


def test_in_the_slots_mode_a_job_waits_behind_its_gate_though_it_fits_where_others_go_first(
    shaping, tmp_path
):
    polled(shaping, [], [a_node("dgx1", 8), a_node("dgx2", 8)])
    values = answered(replace(shaping, inner=slots(tmp_path, 0xFF)), submit())
    assert "[gpu-slots: gated " in values["set.admin_comment"]
    fixed = submit(shape=0, gpus=2, per_node=2, nodes=1, tpn="gres/gpu:2")
    values = answered(replace(shaping, inner=slots(tmp_path, 0xFF)), fixed)
    assert "[gpu-slots: gated " in values["set.admin_comment"]


def test_a_gate_is_opened_for_the_shape_and_the_job_that_the_plan_starts(shaping):
    one_left = [a_node("dgx1", 4), a_node("dgx2", 8)]
    polled(shaping, [queued(7, "1x4"), queued(8, "1x4")], one_left)
    asked = {job: question(job=job, partition="dl", hint=HINT) for job in (7, 8, 9)}
    assert shaping.hold_reason(asked[7], Shape(1, 4)) == ""
    assert shaping.hold_reason(asked[7], Shape(1, 2)) == "genie: others go first"
    assert shaping.hold_reason(asked[8], Shape(1, 4)) == "genie: others go first"
    assert shaping.hold_reason(asked[9], Shape(1, 4)) == ""
