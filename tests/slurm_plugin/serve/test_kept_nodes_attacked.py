"""Tables of nodes that are wrong though everything agrees, or come in the middle of others."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from engine_in_tests import an_engine, written
from machines_in_tests import BASIC, mask, node, place
from node_tables_in_tests import TABLE, SlowLook, halves, table_of, told

from bench.request_lines import encode_request
from slurm_plugin.base.node_lines import NodesPart, TableChanges, digest, mix
from slurm_plugin.base.protocol import split
from slurm_plugin.serve.service import Engine
from slurm_plugin.serve.setup import look_over

NODES = 100
NAMES = [f"n{at}" for at in range(NODES)]
FULL, BUSY = 0xFF, 0xF0


def table(free: list[int]) -> NodesPart:
    """All nodes of a large cluster."""
    return table_of(NAMES, [8] * NODES, free)


def large(tmp_path: Path) -> Engine:
    return an_engine(tmp_path, BASIC.replace("nodes: mirrored,", 'nodes: "mirrored,n[0-99]",'))


def chosen(engine: Engine, free: list[int], listed: int) -> tuple[str, int, bool]:
    """Node and GPUs of the reply to a question, and whether the table is asked for again."""
    own = node(NAMES[listed], free[listed], free[listed] & -free[listed])
    asked = place(own, changes=TableChanges(TABLE, digest(free), {}, f"0-{NODES - 1}", None))
    verb, pairs = split(engine.answer(encode_request(asked)).reply)
    assert verb == "use"
    reply = dict(pairs)
    name, gpus = reply["node"].split("/")
    return name, int(gpus, 16), "resync" in reply


def unnoticed() -> set[int]:
    """Nodes that can go from FULL to BUSY together without another digest.

    A digest is a sum in GF(2)^64, so that some of 65 changes always cancel out.
    """
    rows: dict[int, tuple[int, int]] = {}
    for at in range(NODES):
        value, members = mix(at, FULL) ^ mix(at, BUSY), 1 << at
        while value:
            top = value.bit_length()
            if top not in rows:
                rows[top] = (value, members)
                break
            value, members = value ^ rows[top][0], members ^ rows[top][1]
        else:
            return {one for one in range(NODES) if members >> one & 1}
    raise AssertionError("no such set")


async def test_a_table_told_anew_counts_though_its_digest_is_that_of_the_old_one(tmp_path):
    """What the plugin does when it finds advice with GPUs in use: it knows no better."""
    changed = unnoticed()
    before = [FULL] * NODES
    after = [BUSY if at in changed else FULL for at in range(NODES)]
    assert digest(before) == digest(after)
    listed = min(set(range(NODES)) - changed)
    engine = large(tmp_path)
    await told(engine, table(before))
    _, _, first_lost = chosen(engine, after, listed)
    # It may take GPUs on any node for free that are not; nothing shows it.
    assert engine.tables._tables[TABLE].free == before
    await told(engine, table(after))
    name, gpus, lost = chosen(engine, after, listed)
    assert (first_lost, lost) == (False, False)
    assert engine.tables._tables[TABLE].free == after
    assert not gpus & ~after[NAMES.index(name)]


async def test_of_two_tables_that_come_at_once_none_is_mixed_with_the_other(tmp_path):
    """Two slurmctld, or one that was started again in the middle: the part of neither is lost."""
    engine = large(tmp_path)
    one = halves(table([FULL] * NODES), 50)
    other = [replace(half, table=7, free=[BUSY] * 50) for half in one]
    said = [engine.answer(encode_request(part)) for part in (one[0], other[0], one[1])]
    assert said[1].reply == b"ok id=1\n"
    assert said[2].reply.startswith(b"error id=1")
    # Each begins again, as both plugins do, one after the other.
    for pair, number, free in ((one, TABLE, FULL), (other, 7, BUSY)):
        engine.answer(encode_request(pair[0]))
        await told(engine, pair[1])
        assert engine.tables._tables[number].free == [free] * NODES


async def test_a_table_that_comes_while_the_configuration_is_read_again_is_not_used_with_the_old(
    tmp_path, monkeypatch
):
    """It is asked for once more: its nodes were seen as the machines they are no longer."""
    engine = large(tmp_path)
    look, full = SlowLook(), [FULL] * NODES
    await told(engine, table(full))
    monkeypatch.setattr("slurm_plugin.serve.service.look_over", look)
    yaml = BASIC.replace("nodes: mirrored,", 'nodes: "mirrored,n[0-98]",')
    written(tmp_path, yaml)
    reloading = asyncio.create_task(engine.reload())
    assert await asyncio.to_thread(look.begun.wait, 30)
    monkeypatch.setattr("slurm_plugin.serve.service.look_over", lambda *_, **__: True)
    # Another number: slurmctld was started again just now.
    await told(engine, replace(table(full), table=8))
    look.may_end.set()
    assert await reloading is None
    asked = place(
        node("n0", FULL, mask(0)),
        changes=TableChanges(8, digest(full), {}, f"0-{NODES - 1}", None),
    )
    assert b"resync=1" in engine.answer(encode_request(asked)).reply
    await told(engine, replace(table(full), table=8))
    assert b"resync=1" not in engine.answer(encode_request(asked)).reply
    assert "n99" in engine.tables._tables[8].excluded


@pytest.mark.parametrize(
    ("quiet_s", "ends_in_s", "is_ranked"), [(0.0, 60.0, True), (3600.0, 0.05, False)]
)
async def test_a_table_in_use_is_looked_over_while_no_question_comes(
    tmp_path, monkeypatch, quiet_s, ends_in_s, is_ranked
):
    """Where questions never cease, not at all: a reload waits for it."""
    monkeypatch.setattr("slurm_plugin.serve.service.LOOK_OVER_S", -1.0)
    monkeypatch.setattr("slurm_plugin.serve.service.QUIET_S", quiet_s)
    monkeypatch.setattr("slurm_plugin.serve.service.time.sleep", lambda _: None)
    look = partial(look_over, limit_s=ends_in_s)
    engine = large(tmp_path)
    await told(engine, table([FULL] * NODES))
    chosen(engine, [FULL] * NODES, 0)
    monkeypatch.setattr("slurm_plugin.serve.service.look_over", look)
    assert engine.status()["computing_ahead"]
    await asyncio.gather(*engine._looking_on)
    assert not engine.status()["computing_ahead"]
    ranked = engine.tables._tables[TABLE].table.alike._rankings
    assert ({count for _, count in ranked} >= set(range(1, 9))) == is_ranked
