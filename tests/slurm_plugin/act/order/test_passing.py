"""Who is let pass in a partition, what Slurm is told, and what stays as it was."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from passing_in_tests import (
    FIRST,
    HOLDS,
    MULTIFACTOR,
    NOW,
    ORDERED,
    RULE,
    Site,
    engine_with,
    job,
    look,
    node,
    polled,
    runs,
)

from policies.order.durations import Learning
from slurm_plugin.act.order.learned_durations import NAME, LearnedDurations
from slurm_plugin.act.order.passing import GRACE_S, PAUSE_S, PassingInPartition, own_place, why_not
from slurm_plugin.base.log_lines import UseLine
from slurm_plugin.cli.site.status import _ordered
from slurm_plugin.decide.decision_log import read
from slurm_plugin.doctor.checks import check_order
from slurm_plugin.serve.loops.order import RAISED, OrderLoop
from slurm_plugin.slurm.interface import JobUpdate
from slurm_plugin.tell.explain.story import story_of
from slurm_plugin.tell.explain.text import in_words

ENDLESS = MULTIFACTOR | {"OverTimeLimit": "UNLIMITED"}
BOUND_S = RULE.order_bound_s


@pytest.fixture
def queue() -> PassingInPartition:
    return PassingInPartition("batch", RULE, Learning())


def test_a_short_job_goes_before_the_first_and_both_are_told(queue):
    updates = look(queue, HOLDS, FIRST, job(3), job(4, limit_s=BOUND_S + 1))

    assert updates.keys() == {2, 3}
    assert 997 + updates[3].site_factor == 999  # one before the first in line, which has 998
    promised = "at most 600 s and what Slurm takes to end a job"
    says = "passed job 2, by its limit of 300 s: those that pass hold the first in line up for "
    assert says + promised in updates[3].admin_comment
    assert f"let 1 shorter jobs pass, which hold it up for {promised}" in updates[2].admin_comment
    assert updates[2].site_factor is None
    over = queue.look([HOLDS, FIRST, job(5)], node(*range(6)), NOW + 90, over_s=240.0)
    assert "by its limit of 540 s with 240 s of OverTimeLimit: " in over[0][1].admin_comment


@pytest.mark.parametrize(("uid", "is_named"), [(1, False), (0, True)])
def test_where_users_see_their_own_jobs_alone_no_note_names_anothers(queue, uid, is_named):
    mine = job(3, uid=uid)
    [(_, update), _] = queue.look([HOLDS, FIRST, mine], node(*range(6)), NOW, is_private=True)
    assert ("passed job 2, " in update.admin_comment) == is_named
    assert is_named or "passed another user's job, by its limit of 300 s" in update.admin_comment
    # The engine knows its own note.
    noted = replace(mine, admin_comment=update.admin_comment)
    assert own_place(noted).admin_comment is not None


def test_where_all_have_the_least_priority_a_factor_of_one_would_change_nothing(queue):
    """Slurm shows 1 where its factors come to 0."""
    updates = look(queue, HOLDS, replace(FIRST, priority=1), job(3, priority=1))
    assert updates[3].site_factor == 2


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(job(3, limit_s=0), id="no limit"),
        pytest.param(job(3, 3), id="does not fit"),
        pytest.param(job(3, tasks=4), id="tasks of an array"),
        pytest.param(job(3, het_id=3), id="component"),
        pytest.param(job(3, partition="batch,other"), id="two partitions"),
        pytest.param(job(3, partition="other"), id="another partition"),
        pytest.param(job(3, reservation="maint"), id="a reservation"),
        pytest.param(job(3, priority=0), id="held"),
        pytest.param(job(3, dependency="afterok:9(unfulfilled)"), id="depends"),
        pytest.param(job(3, eligible=NOW + 60), id="begins later"),
        pytest.param(job(3, reason="QOSMaxJobsPerUserLimit"), id="a limit"),
        pytest.param(job(3, req_nodes="n2"), id="wants another node"),
        pytest.param(job(3, exc_nodes="n[1-4]"), id="excludes the node"),
        pytest.param(job(3, req_nodes="n[1-"), id="no node list"),
    ],
)
def test_these_are_left_where_slurm_has_them(queue, other):
    assert look(queue, HOLDS, FIRST, other) == {}


def test_a_first_in_line_that_fits_is_passed_by_nobody(queue):
    assert look(queue, HOLDS, job(2, 2), job(3)) == {}


def test_one_that_a_limit_keeps_back_is_not_the_first_in_line(queue):
    limited = replace(FIRST, reason="AssocGrpGRES")

    assert look(queue, HOLDS, limited, job(3), job(4)) == {}


def test_once_the_first_is_due_only_what_ends_in_time_may_pass(queue):
    look(queue, HOLDS, FIRST, job(3, 2))
    passed = runs(job(3, 2), 6, 7)
    # Job 1 ended: without job 3 the first in line would start now.
    assert queue.look([FIRST, passed], node(6, 7), NOW + 10) == []

    later = [FIRST, passed, job(4, limit_s=BOUND_S), job(5, limit_s=BOUND_S - 100)]
    late = queue.look(later, node(6, 7), NOW + 60)

    assert [one.job_id for one, update in late if update.site_factor] == [5]
    assert queue.look([FIRST, passed, job(6, limit_s=1)], node(6, 7), NOW + 11 + BOUND_S) == []


def test_what_does_not_begin_gets_its_own_place_again_and_a_pause(queue):
    raised = look(queue, HOLDS, FIRST, job(3))[3]
    waiting = job(3, priority=997 + raised.site_factor, admin_comment=raised.admin_comment)

    assert look(queue, HOLDS, FIRST, waiting, job(4), at=NOW + 5).keys() == set()
    back = look(queue, HOLDS, FIRST, waiting, at=NOW + GRACE_S + 1)
    assert back[3] == JobUpdate(site_factor=0, admin_comment="")
    assert look(queue, HOLDS, FIRST, job(3), at=NOW + GRACE_S + 2) == {}
    again = look(queue, HOLDS, FIRST, job(3), at=NOW + GRACE_S + PAUSE_S + 2)
    assert again[3].site_factor


def test_a_requeued_job_gets_its_own_place_again_and_nobody_passes_by_its_raised_one(queue):
    raised = look(queue, HOLDS, FIRST, job(3))[3]
    begun = runs(job(3, admin_comment="[gpu-topo: | mapa: 6]"), 6)
    assert look(queue, HOLDS, FIRST, begun, at=NOW + 5, used=7) == {}
    again = replace(job(3), priority=997 + raised.site_factor, admin_comment=begun.admin_comment)

    back = look(queue, HOLDS, FIRST, again, job(4), at=NOW + GRACE_S / 2)

    # What the placement says of its first run is none of the order's.
    assert back == {3: JobUpdate(site_factor=0)}
    assert queue.raised == {}
    assert look(queue, HOLDS, FIRST, job(3), job(4), at=NOW + GRACE_S).keys() == {2, 4}


def test_a_clock_that_was_set_back_leaves_nobody_in_front(queue):
    look(queue, HOLDS, FIRST, job(3))
    assert look(queue, HOLDS, FIRST, job(3), at=NOW - 3600)[3].site_factor == 0


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({}, None),
        ({"PrioritySiteFactorPlugin": "(null)"}, None),
        ({"PriorityType": "priority/basic"}, "PriorityType is priority/basic"),
        ({"PriorityType": ""}, "PriorityType is not known"),
        ({"PrioritySiteFactorPlugin": "site_factor/x"}, "PrioritySiteFactorPlugin is site_fac"),
    ],
)
def test_where_site_factors_order_nothing_or_are_the_sites_own_it_is_said(values, problem):
    said = why_not(MULTIFACTOR | values)
    assert said is None if problem is None else said is not None and problem in said[0]


def test_a_note_that_the_plugin_goes_by_stays(queue):
    put_off = f"[gpu-topo: | waiting 1/10 since 5: wait (until {NOW + 9}, begin 5)]"

    assert look(queue, HOLDS, FIRST, job(3, admin_comment=put_off))[3].admin_comment is None


def test_run_times_are_learned_from_jobs_that_are_gone():
    learned = LearnedDurations()
    queue = PassingInPartition("batch", replace(RULE, order_by="predictions"), learned.learning)
    for number in range(10, 16):
        learned.look([runs(job(number, 1, 86_400), 0, since=NOW)], NOW)
        learned.look([runs(job(number, 1, 86_400), 0, since=NOW)], NOW + 450)
        learned.look([], NOW + 460)

    updates = look(queue, HOLDS, FIRST, job(20, limit_s=900), at=NOW + 500)

    said = updates[20].admin_comment
    assert re.search(r"passed job 2, by a prediction of 4\d\d s and its limit of 900 s: ", said)
    # What is promised is what limits bound: twice as long as predictions may say.
    assert f"at most {2 * BOUND_S} s and" in said


@pytest.mark.parametrize(
    ("rule", "changed"),
    [(ORDERED, True), ("mode: enforce", False), ("mode: observe, order: predicted", False)],
)
def test_only_where_the_site_says_so_anything_is_changed(tmp_path, slurm, rule, changed):
    engine = engine_with(tmp_path, rule)
    polled(OrderLoop(engine), slurm)
    assert bool(slurm.updates) == changed
    engine.log.close()
    records = [one for one in read(engine.setup.config.decision_log) if one.job == 3]
    assert bool(records) == changed
    if changed:
        (words,) = in_words(story_of(3, records, "log")).splitlines()[1:2]
        assert words.split()[:4] == ["order", "passed", "job", "2,"]
        begun = UseLine(job=3, partition="batch", mode="enforce")
        assert "passed job 2" in in_words(story_of(3, [*records, begun], "log"))
    assert ("order" in engine.status()) == changed


def test_what_was_learned_outlives_the_engine_and_a_broken_file_costs_a_line(
    tmp_path, slurm, caplog
):
    slurm.jobs_there = [runs(job(3), 0)]

    def kept() -> int:
        engine = engine_with(tmp_path)
        loop = OrderLoop(engine)
        polled(loop, slurm)
        slurm.jobs_there = []
        engine.setup.durations._saved = float("-inf")
        polled(loop, slurm)
        file = engine.setup.config.state_dir / NAME
        assert file.exists()
        return engine.status()["order"]["predicted"]["kept"]

    first = kept()
    assert first > 0
    assert kept() == first
    (file,) = tmp_path.rglob(NAME)
    file.write_bytes(b'[["x')
    assert kept() == 0
    assert "starting anew" in caplog.text


@pytest.mark.parametrize("rule", [ORDERED, "mode: enforce"], ids=["ordered", "no more"])
def test_the_next_engine_gives_those_that_wait_their_own_place_again(tmp_path, slurm, rule):
    assert polled(OrderLoop(engine_with(tmp_path)), slurm)["3"] > 0
    slurm.refused = ("3",)
    loop = OrderLoop(engine_with(tmp_path, rule))
    assert polled(loop, slurm) == {}

    slurm.refused = ()
    assert polled(loop, slurm) == {"3": 0}
    (file,) = tmp_path.rglob(RAISED)
    assert file.read_bytes() == b"[]"
    assert "3" not in polled(loop, slurm)


async def test_who_is_let_pass_is_written_down_before_slurm_is_told(tmp_path, slurm):
    loop = OrderLoop(engine_with(tmp_path))
    found = []
    slurm.update = lambda *_: found.append(
        b'"job_id":3' in next(tmp_path.rglob(RAISED)).read_bytes()
    )
    await loop.poll(time.monotonic())
    assert found == [True, True]


def test_who_passed_before_the_start_is_known_to_the_next_engine(tmp_path, slurm):
    polled(OrderLoop(engine_with(tmp_path)), slurm)
    loop = OrderLoop(engine_with(tmp_path))
    slurm.jobs_there = [FIRST, runs(job(3), 6)]
    polled(loop, slurm)
    assert loop._of["batch"].raised.keys() == {3}
    # Gone from the queue: forgotten.
    slurm.jobs_there = [FIRST]
    polled(loop, slurm)
    assert loop._raised == {}


def test_a_new_configuration_with_the_same_rule_forgets_nothing(tmp_path, slurm):
    engine = engine_with(tmp_path)
    loop = OrderLoop(engine)
    polled(loop, slurm)
    loop._setup = engine_with(tmp_path).setup
    polled(loop, slurm)
    assert engine.status()["order"]["passed"] == {"batch": 1}


def test_where_slurm_goes_by_no_site_factor_nothing_is_changed_and_status_says_why(
    tmp_path, slurm, caplog
):
    slurm.settings = {"PriorityType": "priority/basic"}
    engine = engine_with(tmp_path)
    loop = OrderLoop(engine)
    for _ in range(2):
        assert polled(loop, slurm) == {}
    stopped = engine.status()["order"]["stopped"]
    assert stopped == "PriorityType is priority/basic; PriorityType=priority/multifactor"
    assert caplog.text.count("nobody may pass") == 1
    assert _ordered({"stopped": stopped})[0].startswith("order: NOBODY MAY PASS: PriorityType is")


@pytest.mark.parametrize(
    ("over", "limit_s", "passes"),
    [("0 min", 600, True), ("5 min", 300, True), ("5 min", 360, False), ("UNLIMITED", 60, False)],
)
def test_how_long_jobs_run_on_at_their_limits_is_reckoned_with(
    tmp_path, slurm, over, limit_s, passes
):
    slurm.settings = MULTIFACTOR | {"OverTimeLimit": over}
    slurm.jobs_there = [HOLDS, FIRST, job(3, limit_s=limit_s)]
    loop = OrderLoop(engine_with(tmp_path))
    assert ("3" in polled(loop, slurm)) == passes
    endless = "OverTimeLimit of batch is UNLIMITED, so limits end no job there"
    assert (endless in loop.status()["order"].get("stopped", "")) == (over == "UNLIMITED")


@pytest.mark.parametrize(
    ("order", "values", "says"),
    [
        ("slurm", {}, "ok: every partition has Slurm's own"),
        ("predicted", MULTIFACTOR, "ok: shorter jobs may pass in batch"),
        ("predicted", ENDLESS, "fail: nobody may pass: OverTimeLimit of batch is UNLIMITED, "),
        ("predicted", {"PriorityType": "priority/basic"}, "fail: nobody may pass in batch: Prior"),
    ],
)
def test_doctor_says_whether_slurm_goes_by_the_order(order, values, says):
    config = SimpleNamespace(partitions={"batch": replace(RULE, order=order)})
    here = SimpleNamespace(config=config, slurm_config=values, slurm=Site())
    (found,) = check_order(here)
    assert f"{found.level}: {found.text}".startswith(says)
