"""A submit in the slots mode: exact slots now, a gate, or Slurm's own choice."""

from dataclasses import replace
from pathlib import Path

import pytest
from machines_in_tests import BASIC, basic_config, basic_decider
from slot_submits_in_tests import LEASE_S, NOW, cache, left, mode, site, state_of, submit, told
from slots_in_tests import record_in

from slurm_plugin.act.enforcement.slots import Slots
from slurm_plugin.act.gates.capacity_cache import MOST_UNMET, PROMISE_S, UNMET_S, CapacityCache
from slurm_plugin.base.protocol import Pass, Refuse, Submit
from slurm_plugin.decide.rules import Rules
from slurm_plugin.queue.backfill import WaitingLine
from slurm_plugin.queue.candidates import Need
from slurm_plugin.queue.capacity import Hold, with_hold
from slurm_plugin.queue.snapshot import Settings
from slurm_plugin.slurm.interface import Reservation, SlurmPartition


def test_two_gpus_of_an_empty_dgx1v_get_the_double_nvlink(tmp_path):
    state = cache()
    values = told(mode(tmp_path, state).on_submit(submit()))
    assert state.is_awaited, "when it starts is to be seen soon"
    assert values["tres_per_node"] == "gres/gpu:v100.s0:1,gres/gpu:v100.s3:1"
    assert (values["req_nodes"], values["min_nodes"], values["max_nodes"]) == ("dgx1", "1", "1")
    found = record_in(values["admin_comment"])
    assert (found.state, found.get("tpn"), found.get("by")) == ("placed", "gres/gpu:2", "node")
    assert values["admin_comment"].startswith("[gpu-topo: ")


def test_a_job_is_placed_where_it_meets_no_reservation(tmp_path):
    """Without a time limit of its own it has the partition's, which is not known here."""
    for time_s, start, node in ((60, 59, "dgx2"), (60, 60, "dgx1"), (0, 9999, "dgx2")):
        state = cache("dgx1", "dgx2")
        state.reserved = (Reservation("m", int(NOW) + start, int(NOW) + 10_000, ("dgx1",)),)
        assert told(mode(tmp_path, state).on_submit(submit(time_s=time_s)))["req_nodes"] == node


def test_slots_promised_to_one_job_are_not_given_to_the_next(tmp_path):
    slots, given = mode(tmp_path, cache()), set()
    for _ in range(4):
        text = told(slots.on_submit(submit()))["tres_per_node"]
        given |= set(text.split(","))
    assert len(given) == 8
    values = told(slots.on_submit(submit()))
    assert state_of(values) == "gated"
    assert "tres_per_node" not in values


def test_the_decision_to_wait_for_better_gpus_is_written_down_soon(tmp_path):
    state = cache(free=1 << 0 | 1 << 5)
    values = told(mode(tmp_path, state).on_submit(submit(hint="min-utility=0.9")))
    assert state_of(values) == "gated"
    assert [promise.build is not None for promise in state.gated.values()] == [True]
    assert state.is_awaited


def test_a_full_cluster_gates_and_keeps_the_request(tmp_path):
    state = cache(free=0)
    values = told(mode(tmp_path, state).on_submit(submit(3)))
    assert not state.is_awaited
    assert state_of(values) == "gated"
    assert values["begin_time"] == str(int(NOW) + LEASE_S)
    assert "tpn=gres/gpu:3" in values["admin_comment"]


@pytest.mark.parametrize(
    ("sentence", "free", "keys"),
    [
        ("no room", 0, {}),
        ("an array without room", 0, {"array": True}),
        ("it depends on another", 0xFF, {"depends": True}),
        ("it is held", 0xFF, {"held": True}),
    ],
)
def test_a_gate_may_be_used_for_equal_submits(tmp_path, sentence, free, keys):
    state = cache(free=free)
    reply = mode(tmp_path, state).on_submit(submit(**keys))
    assert reply.values["keep_s"] == "1", sentence
    assert f"token={reply.values['token']} " in reply.values["set.admin_comment"]
    assert state.has_news != bool({"depends", "held"} & keys.keys()), "nothing to do about those"
    state.update(state.nodes, (), WaitingLine(), NOW)
    assert not state.has_news


@pytest.mark.parametrize(
    ("sentence", "free", "keys"),
    [
        ("it has its slots", 0xFF, {}),
        ("the next look may release it", 0xFF, {"array": True}),
        ("its components are looked at together", 0, {"het": True}),
        ("it begins at a moment of its own", 0xFF, {"begin": int(NOW) + 9}),
        ("the decision is written down", 1 << 0 | 1 << 5, {"hint": "min-utility=0.9"}),
    ],
)
def test_any_other_answer_is_for_one_job(tmp_path, sentence, free, keys):
    state = cache(free=free)
    reply = mode(tmp_path, state).on_submit(submit(**keys))
    assert not {"keep_s", "token"} & reply.values.keys(), sentence
    assert state.has_news


def test_the_users_own_begin_is_kept(tmp_path):
    later = int(NOW) + 9999
    values = told(mode(tmp_path, cache()).on_submit(submit(begin=later)))
    assert values["begin_time"] == str(later)
    assert f"begin={later}" in values["admin_comment"]


@pytest.mark.parametrize("key", ["depends", "held", "array", "het"])
def test_what_cannot_start_as_one_job_now_is_gated(tmp_path, key):
    state = cache()
    values = told(mode(tmp_path, state).on_submit(submit(**{key: True})))
    assert state_of(values) == "gated"
    assert state.is_awaited == (key in ("array", "het")), "the next look can release those"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (submit(9), "no node can ever serve it"),
        (
            submit(0, form="socket", tps="gres/gpu:1"),
            "GPUs per node are not known before the start",
        ),
        (
            submit(2, form="socket", tps="gres/gpu:1", by_core=True),
            "GPUs per node are not known before the start",
        ),
        (submit(features="[a*2]"), "the constraint (a*2) cannot be judged"),
        (submit(hint="off"), "opted out by hint"),
        (submit(reservation="r"), "the job runs in a reservation"),
        (submit(overcommit=True), "with --overcommit Slurm starts no job on slots"),
        (submit(prefers=True), "with --prefer Slurm chooses the nodes"),
        (submit(nodes=2, together=True), "which nodes are neighbours Slurm alone knows"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_slurms_own_choice(tmp_path, asked, why):
    assert left(mode(tmp_path, cache()).on_submit(asked)) == why


def test_where_the_mode_is_off_nothing_is_said(tmp_path):
    assert isinstance(mode(tmp_path, cache()).on_submit(submit(partition="quiet")), Pass)


ELSEWHERE = SlurmPartition("elsewhere", (), True)
BY_TIERS = {"PreemptType": "preempt/partition_prio"}
PREEMPTS = site(SlurmPartition("low", (), False), config=BY_TIERS, priority_tier=2)


@pytest.mark.parametrize(
    ("known", "asked", "why"),
    [
        ({"fresh_s": 60, "polled_at": NOW - 60}, submit(), "Slurm's queue was not read lately"),
        ({"settings": Settings((ELSEWHERE,))}, submit(partition=""), "no node can ever serve it"),
        ({"settings": PREEMPTS}, submit(), "the partition may preempt others"),
        ({}, submit(closes=True), "the job closes its nodes to other users"),
        (
            {"settings": site(closes_nodes=True)},
            submit(),
            "the job closes its nodes to other users",
        ),
        (
            {"settings": site(SlurmPartition("busy", ("dgx1",), False, share=4))},
            submit(),
            "jobs of other partitions may share cores there (OverSubscribe)",
        ),
    ],
    ids=["old figures", "none named", "preempts", "--exclusive=user", "ExclusiveUser", "shares"],
)
@pytest.mark.parametrize("free", [0, 0xFF], ids=["nothing is free", "all is free"])
def test_what_leaves_jobs_to_slurm_neither_placed_nor_gated(tmp_path, free, known, asked, why):
    state = cache(free=free)
    for name, value in known.items():
        setattr(state, name, value)
    assert left(mode(tmp_path, state).on_submit(asked)) == why


def test_a_bad_hint_is_refused(tmp_path):
    assert isinstance(mode(tmp_path, cache()).on_submit(submit(hint="nonsense=1")), Refuse)


PAIR = "gres/gpu:v100.s0:1,gres/gpu:v100.s3:1"
FIELDS = {
    "two nodes get the same slots": (
        submit(nodes=2),
        {"tres_per_node": PAIR, "req_nodes": "dgx1,dgx2", "min_nodes": "2"},
    ),
    "a direct srun gets its slots for the whole job": (
        submit(nodes=2, batch=False),
        {"tres_per_job": "gres/gpu:v100.s0:2,gres/gpu:v100.s3:2", "tres_per_node": ""},
    ),
    "a direct srun by model gets its slots per node": (
        submit(batch=False, type="v100"),
        {"tres_per_node": PAIR},
    ),
    "what is no GPU stays in the request": (
        submit(form="task", tpn="", tpt="cpu=4,gres/gpu=1", tasks=2),
        {"tres_per_task": "cpu=4"},
    ),
    "Slurm 22.05 is told in its own words": (
        submit(tpn="gres:gpu:2"),
        {"tres_per_node": PAIR.replace("/", ":")},
    ),
    "CPUs per GPU become CPUs per task": (
        submit(cpus_per_gpu=3),
        {"cpus_per_tres": "", "min_cpus": "6", "cpus_per_task": "6"},
    ),
}


@pytest.mark.parametrize(("asked", "fields"), FIELDS.values(), ids=FIELDS)
def test_the_fields_of_a_placed_job(tmp_path, asked, fields):
    values = told(mode(tmp_path, cache("dgx1", "dgx2")).on_submit(asked))
    assert {key: values[key] for key in fields} == fields


def test_a_new_job_does_not_delay_the_first_gated_one(tmp_path):
    state = cache()
    running = Hold({"dgx1": 0x0F}, 1, 0, NOW + 100)
    state.nodes, state.holds = with_hold(state.nodes, running), (running,)
    state.line = WaitingLine().with_job(Need(8), state.nodes, state.holds, NOW)
    slots = mode(tmp_path, state)
    assert state_of(told(slots.on_submit(submit(time_s=99)))) == "placed"
    assert state_of(told(slots.on_submit(submit(time_s=101)))) == "gated"
    assert state_of(told(slots.on_submit(submit(time_s=0)))) == "gated"


def test_a_watched_partition_changes_nothing_and_writes_the_decision_down(tmp_path):
    state = cache()
    assert mode(tmp_path, state).on_submit(submit(partition="watched")) == Pass()
    [build] = state.observed
    line = build()
    assert (line.mode, line.chosen.gpus) == ("observe", {"dgx1": (0, 3)})


def test_a_gated_job_is_told_what_it_waits_for(tmp_path):
    values = told(mode(tmp_path, cache(free=1)).on_submit(submit(hint="pattern=ring")))
    assert values["admin_comment"].startswith(
        "[gpu-topo: pattern=ring | waits for 2 free GPUs on one node] [gpu-slots: gated "
    )


def test_a_job_ended_that_no_look_has_seen_the_end_of(tmp_path):
    state = cache()
    state.ended += 1
    assert state_of(told(mode(tmp_path, state).on_submit(submit()))) == "gated"
    state.update(state.nodes, (), WaitingLine(), NOW, known=1)
    assert state_of(told(mode(tmp_path, state).on_submit(submit()))) == "placed"


def per_socket(gpus: int, each: int) -> Submit:
    return submit(gpus, form="socket", tpn="", tps=f"gres/gpu:{each}")


def test_gpus_of_one_socket_come_from_the_one_with_most_free(tmp_path):
    values = told(mode(tmp_path, cache(free=0b1110_0110)).on_submit(per_socket(2, 2)))
    slots = {item.rpartition(".s")[2][0] for item in values["tres_per_node"].split(",")}
    assert slots <= {"5", "6", "7"}
    assert values["tres_per_socket"] == ""
    assert "tps=gres/gpu:2" in values["admin_comment"]
    assert "spn=1" in values["admin_comment"]


def test_gpus_on_every_socket_are_the_policys_where_they_are_even(tmp_path):
    values = told(mode(tmp_path, cache()).on_submit(per_socket(8, 4)))
    assert len(values["tres_per_node"].split(",")) == 8
    # The best pair of a DGX-1V, 0 and 3, is one socket's.
    assert "evenly on the sockets" in left(mode(tmp_path, cache()).on_submit(per_socket(2, 1)))


def test_a_job_with_more_cpus_or_memory_than_any_node_has_is_slurms_own(tmp_path):
    room = {"dgx1": replace(cache().nodes["dgx1"], all_cpus=40, all_memory_mb=1000)}
    state = CapacityCache(settings=site())
    state.update(room, (), WaitingLine(), NOW)
    for asked in (submit(tasks=41, cpus_per_task=1), submit(mem_node_mb=1001)):
        assert left(mode(tmp_path, state).on_submit(asked)) == "no node can ever serve it"
    fits = submit(tasks=40, cpus_per_task=1, mem_node_mb=1000)
    assert state_of(told(mode(tmp_path, state).on_submit(fits))) == "placed"


def test_with_cores_near_the_gpus_alone_slots_are_of_one_socket(tmp_path):
    scattered = cache(free=0b0001_1000)
    asked = submit(2, enforce_binding=True)
    values = told(mode(tmp_path, scattered).on_submit(asked))
    assert "[gpu-slots: gated" in values["admin_comment"]
    assert "bind=1" in values["admin_comment"]
    values = told(mode(tmp_path, cache(free=0b1001_0001)).on_submit(asked))
    assert values["tres_per_node"] == "gres/gpu:v100.s4:1,gres/gpu:v100.s7:1"


@pytest.mark.parametrize("asked", [submit(5, enforce_binding=True), per_socket(2, 1)])
def test_gpus_of_several_sockets_with_cores_near_them_alone_are_slurms_own(tmp_path, asked):
    assert asked.slots is not None
    asked = replace(asked, slots=replace(asked.slots, enforce_binding=True))
    assert "have to be of one socket" in left(mode(tmp_path, cache()).on_submit(asked))


def lending_mode(folder: Path, state: CapacityCache) -> Slots:
    """The same site, where GPUs of other nodes are lent."""
    text = f"{BASIC}enforcement: slots\nremote: {{{{allow: yes, r_queues: [plain]}}}}\n"
    settings = basic_config(folder, text)
    found = mode(folder, state)
    found.decider = replace(found.decider, rule=Rules(settings))
    return found


def test_a_job_that_may_borrow_carries_it_in_its_bracket_and_its_environment(tmp_path):
    ours = lending_mode(tmp_path, cache(free=0b11))
    answer = ours.on_submit(submit(4, hint="remote=allow"))
    values = told(answer)
    kept = record_in(values["admin_comment"])
    assert (kept.state, kept.get("remote"), kept.get("tpn")) == ("gated", "1", "gres/gpu:4")
    assert values["env.GPUTOPO_REMOTE"] == "allow"


MAY, MAY_NOT = ("remote=allow", {}, True), ("", {}, False)
FORM, HELD = (("remote=allow", {key: True}, False) for key in ("het", "held"))


@pytest.mark.parametrize(("hint", "keys", "awaited"), [MAY, MAY_NOT, FORM, HELD])
def test_a_job_that_fits_nowhere_is_looked_at_soon_where_donors_may_be_found(
    tmp_path, hint, keys, awaited
):
    """Any other waits for a look that costs two per cent of the time at most."""
    state = cache(free=0b11)
    lending_mode(tmp_path, state).on_submit(submit(4, hint=hint, **keys))
    assert state.is_awaited is awaited


@pytest.mark.parametrize(
    ("hint", "keys"),
    [
        ("", {}),
        ("remote=no", {}),
        ("remote=allow", {"batch": False}),
        ("remote=allow", {"het": True}),
    ],
    ids=["not asked", "refused by the user", "srun", "heterogeneous job"],
)
def test_a_job_that_may_not_carries_nothing(tmp_path, hint, keys):
    values = told(lending_mode(tmp_path, cache(free=0b11)).on_submit(submit(4, hint=hint, **keys)))
    assert "remote=1" not in values["admin_comment"]
    assert "env.GPUTOPO_REMOTE" not in values
    assert ("are not lent to this job" in values.get("message", "")) is (hint == "remote=allow")


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"batch": False, "immediate": True}, "the batch step meets the donors"),
        ({"immediate": True}, "it is to start at once or not at all"),
    ],
    ids=["srun --immediate", "by another command"],
)
def test_who_asks_to_borrow_and_is_left_to_slurm_is_told_why_not(tmp_path, keys, why):
    slots = lending_mode(tmp_path, cache(free=0b11))
    values = told(slots.on_submit(submit(4, hint="remote=allow", **keys)))
    assert "Slurm's own choice" in values["admin_comment"]
    assert f"are not lent to this job: {why}" in values["message"]
    assert "message" not in told(slots.on_submit(submit(4, **keys)))


def test_submits_that_are_only_tested_keep_the_gpus_from_nobody_for_long(tmp_path):
    """mallory tests again and again; alice has her GPUs at once, or at the next look."""
    state, now = cache("dgx1", "dgx2"), NOW
    decider = basic_decider(tmp_path)
    slots = Slots(decider, state, LEASE_S, clock=lambda: now)
    mallory = replace(submit(8), uid=1002)
    kept = 0
    for _ in range(60):
        for _ in range(2):
            kept += state_of(told(slots.on_submit(mallory))) == "placed"
        now += PROMISE_S
        state.forget(now)
        state.update(state.nodes, (), WaitingLine(), now)
    assert MOST_UNMET <= kept < 4 * MOST_UNMET
    assert state_of(told(slots.on_submit(mallory))) == "gated"
    assert state_of(told(slots.on_submit(submit(8)))) == "placed"
    now += UNMET_S + 1
    state.forget(now)
    state.update(state.nodes, (), WaitingLine(), now)
    assert mallory.uid not in state.unmet
    assert state_of(told(slots.on_submit(mallory))) == "placed"
