"""Questions about a cluster that the engine keeps: in step, out of step, and told anew."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from dataclasses import replace
from pathlib import Path

import pytest
from engine_in_tests import an_engine, written
from machines_in_tests import BASIC, mask, node, place
from node_tables_in_tests import TABLE, SlowLook, halves, table_of, told

from bench.request_lines import encode_request
from slurm_plugin.act.lending.at_start.reservations import LoanReservation
from slurm_plugin.base.node_lines import NodesPart, TableChanges, digest, mix
from slurm_plugin.base.protocol import Place, Use, split
from slurm_plugin.decide import decision_log
from slurm_plugin.decide.kept_nodes import MOST_TABLES
from slurm_plugin.serve.service import Engine

#: In Slurm's order, which is not that of their names; `mystery` is not declared.
NAMES = ["minsky1", "dgx3", "dgx1", "mystery", "dgx2", "mirrored", "login"]
TOTAL = [4, 8, 8, 8, 8, 8, 0]
FULL = [(1 << total) - 1 for total in TOTAL]
FIRST_PAIR, BEST_PAIR = mask(0, 1), mask(0, 3)
#: Of all nodes the best one for a pair: it keeps the fewest GPUs free beside it.
BEST = f"minsky1/{FIRST_PAIR:x}"


def table(free: list[int] = FULL, number: int = TABLE, **more: list[object]) -> NodesPart:
    return replace(table_of(NAMES, TOTAL, free, **more), table=number)


@pytest.fixture
def keeping(tmp_path: Path) -> Engine:
    engine = an_engine(tmp_path)
    said = asyncio.run(told(engine, table()))
    assert said == f"ok id=1 digest={digest(FULL):x}\n"
    return engine


def about(own: dict[str, int], free: list[int] = FULL, **more: object) -> Place:
    """A question whose table has these GPUs free, those of `changed` since the last."""
    changed = more.pop("changed", {})
    others = more.pop("others", "0-6")
    kept = TableChanges(TABLE, digest(free), changed, others, more.pop("heaviest", None))
    at = {name: index for index, name in enumerate(NAMES)}
    listed = [node(name, free[at[name]], own[name], TOTAL[at[name]]) for name in own]
    return place(*listed, changes=kept, **more)


def ask(engine: Engine, asked: Place) -> list[str]:
    """The nodes of the reply as they travel, and `resync=1` where that stands there."""
    answer = engine.answer(encode_request(asked))
    if answer.after:
        answer.after()
    verb, pairs = split(answer.reply)
    assert verb == "use"
    keys = ("node", "resync")
    return [f"{key}={value}" if key == "resync" else value for key, value in pairs if key in keys]


def now(**free: int) -> tuple[list[int], dict[int, int]]:
    """Everything free but what is given, and that as changes."""
    changed = {NAMES.index(name): left for name, left in free.items()}
    return [changed.get(at, full) for at, full in enumerate(FULL)], changed


def test_nodes_that_no_question_lists_are_taken(keeping, tmp_path):
    free, changed = now(dgx1=FIRST_PAIR)
    assert ask(keeping, about({"dgx1": FIRST_PAIR}, free, changed=changed)) != [f"dgx1/{3:x}"]
    keeping.log.close()
    (record,) = decision_log.read(keeping.setup.config.decision_log)
    # All with GPUs but the one that is not declared.
    assert record.candidate_nodes == 5
    assert record.excluded_nodes == {"mystery": "not declared in gputopo.yaml"}
    assert record.slurm.gpus == {"dgx1": (0, 1)}


def test_the_answer_is_that_to_a_question_which_lists_all_nodes(keeping):
    """Through changes, each told once; masks are Slurm's own on a node that counts otherwise."""
    free = list(FULL)
    for round_, (name, left) in enumerate(
        [("dgx1", 0x3C), ("dgx3", 0x81), ("dgx2", 0), ("mirrored", 0xE), ("minsky1", 0xF)]
    ):
        at = NAMES.index(name)
        free[at] = left
        own = {"mirrored": mask(*[g for g in range(8) if free[5] >> g & 1][:2])}
        asked = about(own, free, changed={at: left}, id=round_ + 1)
        listed = place(
            *(
                node(name, free[at], own.get(name, 0), TOTAL[at])
                for at, name in enumerate(NAMES)
                if free[at]
            )
        )
        assert ask(keeping, asked) == ask(keeping, listed)


@pytest.mark.parametrize(
    ("others", "heaviest", "type_", "wanted"),
    [
        ("", None, "", {"dgx1"}),
        ("4", None, "", {"dgx1", "dgx2"}),
        ("1,4", 1, "", {"dgx1", "dgx2"}),
        ("1,4", None, "v100", {"dgx1", "dgx3"}),
        ("3,6", None, "", {"dgx1"}),
    ],
)
async def test_only_nodes_that_the_job_may_use_are(tmp_path, others, heaviest, type_, wanted):
    engine = an_engine(tmp_path)
    types = ["", "v100", "v100", "", "a100", "", ""]
    await told(engine, table(weight=[1, 9, 1, 1, 1, 1, 1], type=types))
    free, changed = now(dgx1=FIRST_PAIR)
    asked = about(
        {"dgx1": FIRST_PAIR}, free, changed=changed, others=others, heaviest=heaviest, type=type_
    )
    message, is_lost = engine._with_others(asked, asked.changes)
    assert not is_lost
    got = set(message.others.with_own({"dgx1": FIRST_PAIR}))
    assert got == wanted


@pytest.mark.parametrize(
    "wrong",
    [
        {"table": 0xBAD},
        {"state": 1},
        {"free": {2: 0x3}},
        {"free": {99: 0x3}},
        {"free": {0: 0x1F}},
        {"others": "0-7"},
        {"others": "*!"},
    ],
)
def test_in_doubt_slurms_own_nodes_alone_are_used_and_the_table_asked_for(keeping, wrong):
    asked = about({"dgx1": FIRST_PAIR})
    odd = replace(asked, changes=replace(asked.changes, **wrong))
    assert ask(keeping, odd) == [f"dgx1/{BEST_PAIR:x}", "resync=1"]


def test_a_listed_node_that_differs_from_the_table_is_a_doubt(keeping):
    asked = about({"dgx1": FIRST_PAIR})
    (listed,) = asked.candidates
    odd = replace(asked, candidates=(replace(listed, free=0x3F),))
    assert ask(keeping, odd)[-1] == "resync=1"


async def test_told_anew_both_sides_are_in_step_again(keeping):
    lost, changed = now(dgx2=0x3)
    asked = about({"dgx1": FIRST_PAIR}, lost)
    assert ask(keeping, asked)[-1] == "resync=1"
    await told(keeping, table(lost))
    assert ask(keeping, asked) == [BEST]
    # A change that is told twice does no harm.
    twice = about({"dgx1": FIRST_PAIR}, lost, changed=changed)
    assert ask(keeping, twice) == ask(keeping, twice) == [BEST]


async def test_a_table_comes_in_parts(tmp_path):
    engine = an_engine(tmp_path)
    first, second = halves(table(), 3)
    assert await told(engine, first) == "ok id=1\n"
    assert await told(engine, second) == f"ok id=1 digest={digest(FULL):x}\n"
    assert ask(engine, about({"dgx1": FIRST_PAIR})) == [BEST]


@pytest.mark.parametrize("order", [(1,), (0, 0, 1), (0, 2), (0, 3)])
async def test_parts_that_do_not_follow_each_other_are_refused(tmp_path, order):
    """Out of turn, twice, of another table, with a gap."""
    engine = an_engine(tmp_path)
    first, second = halves(table(), 3)
    lines = [first, second, replace(second, table=1), replace(second, first=4)]
    said = [await told(engine, lines[at]) for at in order]
    if order == (0, 0, 1):
        # Begun anew.
        assert said[-1].startswith("ok")
        return
    assert said[-1].startswith("error id=1 message=nodes:")
    assert "expected%20part%201" in said[-1]


async def test_a_node_that_stands_in_a_table_twice_is_refused(tmp_path):
    engine = an_engine(tmp_path)
    twice = replace(table(), names=["dgx1"] * 7)
    assert (await told(engine, twice)).startswith("error id=1")


async def test_a_reload_takes_the_tables_along(keeping, tmp_path):
    """With the machines of the new configuration."""
    written(tmp_path, BASIC.replace("nodes: mirrored,", 'nodes: "mirrored,mystery",'))
    assert await keeping.reload() is None
    asked = about({"dgx1": FIRST_PAIR})
    message, is_lost = keeping._with_others(asked, asked.changes)
    assert not is_lost
    assert set(message.others.with_own({})) == set(NAMES) - {"login"}


async def test_a_reload_that_changes_no_machine_keeps_the_tables_as_they_are(keeping, tmp_path):
    kept = keeping.tables._tables[TABLE]
    written(tmp_path, BASIC.replace("max_postponements: 3", "max_postponements: 7"))
    assert await keeping.reload() is None
    assert keeping.setup.config.waiting.max_postponements == 7
    assert keeping.tables._tables[TABLE] is kept
    assert ask(keeping, about({"dgx1": FIRST_PAIR})) == [BEST]


async def test_one_that_names_another_policy_ranks_the_nodes_for_it(keeping, tmp_path):
    kept = keeping.tables._tables[TABLE]
    written(tmp_path, BASIC.replace("policy: mapa", "policy: best-fit"))
    assert await keeping.reload() is None
    fresh = keeping.tables._tables[TABLE]
    assert fresh is not kept
    assert "best-fit" in {kind for kind, _ in fresh.table.alike._rankings}


async def test_questions_are_answered_while_the_configuration_is_read_again(
    keeping, tmp_path, monkeypatch
):
    """And while the tables for other machines are built, from the former ones."""
    look = SlowLook()
    monkeypatch.setattr("slurm_plugin.serve.service.look_over", look)
    written(tmp_path, BASIC.replace("nodes: mirrored,", 'nodes: "mirrored,mystery",'))
    reloading = asyncio.create_task(keeping.reload())
    assert await asyncio.to_thread(look.begun.wait, 30)
    said = ask(keeping, about({"dgx1": FIRST_PAIR}))
    look.may_end.set()
    assert await reloading is None
    assert said == [BEST]
    message, _ = keeping._with_others(*(asked := about({"dgx1": FIRST_PAIR}), asked.changes))
    assert "mystery" in message.others.with_own({})


@pytest.fixture
def at_leisure(monkeypatch):
    """However busy this machine is."""
    monkeypatch.setattr("slurm_plugin.serve.service.LOOK_OVER_S", 60.0)


async def test_a_new_table_is_looked_over_before_it_is_used(tmp_path, at_leisure):
    """By every policy of the rules, for a job of each size that fits somewhere."""
    engine = an_engine(tmp_path)
    await told(engine, table())
    kept = engine.tables._tables[TABLE].table
    assert {count for _, count in kept.alike._rankings} == set(range(1, 9))
    ranked_by = {kind if isinstance(kind, str) else kind[0] for kind, _ in kept.alike._rankings}
    assert ranked_by == {"balanced", "preserved", "first-fit"}


async def test_what_takes_long_to_look_over_is_used_first_and_looked_over_afterwards(
    tmp_path, monkeypatch
):
    """What changes meanwhile counts."""
    monkeypatch.setattr("slurm_plugin.serve.service.LOOK_OVER_S", -1.0)
    engine = an_engine(tmp_path)
    free, changed = now(dgx2=0x3)
    assert await told(engine, table()) == f"ok id=1 digest={digest(FULL):x}\n"
    assert not engine.tables._tables[TABLE].table.alike._rankings
    assert ask(engine, about({"dgx1": FIRST_PAIR}, free, changed=changed)) == [BEST]
    await asyncio.gather(*engine._looking_on)
    ranked = engine.tables._tables[TABLE].table.alike._rankings
    assert {count for _, count in ranked} == set(range(1, 9))
    assert ask(engine, about({"dgx1": FIRST_PAIR}, free)) == [BEST]


async def test_topo_aware_knows_each_class_of_batches_before(tmp_path, at_leisure):
    """And jobs that feel no slow links, and those that say nothing; of one to eight GPUs."""
    engine = an_engine(tmp_path, BASIC.replace("policy: mapa", "policy: topo-aware"))
    await told(engine, table())
    policy = engine.setup.decider.get_policy("topo-aware")
    with policy._solutions.index(engine.tables._tables[TABLE].table, ()) as index:
        needs = {needs for needs, *_ in index.states._rankings}
    assert {one.gpus for one in needs} == set(range(1, 9))
    assert {(one.kind.batch, one.weight) for one in needs} == {
        *((0, 4), (0, 0), (2, 4), (16, 3), (64, 2), (64, 1))
    }


async def test_a_table_that_is_dropped_is_gone_without_the_garbage_collector(keeping):
    """For which all questions would wait."""
    gc.collect()
    gc.disable()
    try:
        ask(keeping, about({"dgx1": FIRST_PAIR}))
        dropped = weakref.ref(keeping.tables._tables[TABLE].table)
        for number in range(1, MOST_TABLES + 1):
            await told(keeping, table(number=number))
        assert dropped() is None
    finally:
        gc.enable()


async def test_changes_that_come_while_a_table_is_rebuilt_count(keeping):
    free, changed = now(dgx2=0x3)
    use = await keeping.tables.rebuilt(keeping.setup.machines, lambda table: True)
    ask(keeping, about({"dgx1": FIRST_PAIR}, free, changed=changed))
    use()
    assert ask(keeping, about({"dgx1": FIRST_PAIR}, free)) == [BEST]


async def test_of_many_tables_the_last_ones_used_are_kept(keeping):
    for number in range(1, MOST_TABLES):
        await told(keeping, table(number=number))
    asked = about({"dgx1": FIRST_PAIR})
    assert ask(keeping, asked) == [BEST]
    await told(keeping, table(number=100))
    assert ask(keeping, asked) == [BEST]
    assert ask(keeping, replace(asked, changes=replace(asked.changes, table=1)))[-1] == "resync=1"


def test_what_is_kept_for_a_loan_is_not_given_to_others(keeping):
    """Not on the nodes of the table either; Slurm's own choice moves to a node that has room."""
    everything = dict.fromkeys(("dgx1", "dgx2", "dgx3"), (1 << 8) - 1)
    shares = {71: Use(everything, note="lends"), 72: Use({"minsky1": 0x7}, note="lends")}
    keeping.setup.reserved.by_borrower = {7: LoanReservation(shares, 2.0**40)}
    before = list(keeping.tables._tables[TABLE].table.index.states())
    asked = about({"dgx1": FIRST_PAIR}, job=8)
    (taken,) = ask(keeping, asked)
    assert taken.split("/")[0] == "mirrored"
    # And nothing of it stays behind.
    assert set(keeping.tables._tables[TABLE].table.index.states()) == set(before)
    assert ask(keeping, about({"dgx1": FIRST_PAIR}, job=8, changed={})) == [taken]


def test_the_digest_is_that_of_the_changes_alone(keeping):
    kept = keeping.tables._tables[TABLE]
    ask(keeping, about({"dgx1": FIRST_PAIR}, now(dgx3=1)[0], changed={1: 1}))
    assert kept.digest == digest(FULL) ^ mix(1, 0xFF) ^ mix(1, 1)


async def test_status_says_when_the_nodes_were_told(tmp_path):
    engine = an_engine(tmp_path)
    assert engine.status()["slurm_nodes"] is None
    before = time.time()
    await told(engine, table())
    shown = engine.status()["slurm_nodes"]
    assert shown["nodes"] == len(NAMES)
    assert before - 0.001 <= shown["told_at"] <= time.time() + 0.001


def test_nothing_is_computed_ahead_while_questions_come(keeping, monkeypatch):
    """It goes on as soon as none came for a while; `gputopo status` says whether it is done."""
    monkeypatch.setattr("slurm_plugin.serve.service.QUIET_S", 3600.0)
    ask(keeping, about({"dgx1": FIRST_PAIR}))
    monkeypatch.setattr("slurm_plugin.serve.service.time.sleep", lambda _: held.wait(0.01))
    held = threading.Event()
    keeping.warm()
    assert keeping.status()["computing_ahead"]
    keeping._warming.join(0.2)
    assert keeping.status()["computing_ahead"]
    monkeypatch.setattr("slurm_plugin.serve.service.QUIET_S", 0.0)
    keeping._warming.join(60)
    assert not keeping.status()["computing_ahead"]
