"""Whose questions take too long is left to Slurm for a while, and nobody else is."""

import time
from typing import Any

import pytest
from engine_in_tests import an_engine
from machines_in_tests import mask, node, place

from bench.request_lines import encode_request
from slurm_plugin.base.protocol import Submit
from slurm_plugin.queue.slow_users import (
    AT_ONCE_S,
    FORGIVES_EVERY_S,
    MOST_USERS,
    SHARE,
    SlowUsers,
)
from slurm_plugin.serve.service import Engine

MALLORY, ALICE = 666, 1000


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def of(clock: Clock) -> SlowUsers:
    return SlowUsers("answers about jobs", "his get Slurm's own choice", clock)


def asked_always(
    slow: SlowUsers, clock: Clock, takes_s: float, for_s: float, rests_s: float = 0.01
) -> float:
    """How long mallory keeps the engine busy who asks so long after an answer, or as he may."""
    busy_s, end = 0.0, clock.now + for_s
    while clock.now < end:
        if slow.is_one(MALLORY):
            clock.now += 0.01
        else:
            clock.now += takes_s
            busy_s += takes_s
            slow.late(MALLORY, takes_s)
            clock.now += rests_s
    return busy_s


@pytest.mark.parametrize("takes_s", [0.06, 0.3, 2.0])
def test_one_user_keeps_the_engine_busy_for_a_share_of_the_time(clock, takes_s):
    busy_s = asked_always(of(clock), clock, takes_s, for_s=600)
    assert SHARE * 600 <= busy_s <= SHARE * 600 + AT_ONCE_S + 2 * takes_s


@pytest.mark.parametrize(
    ("takes_s", "rests_s"), [(0.6, 10), (3, 10), (3, 59), (3, 11), (1, 5), (30, 10), (30, 600)]
)
def test_however_he_spaces_his_questions(clock, takes_s, rests_s):
    """A question is forgiven once in an hour, and one is begun before his share is used up."""
    hours = 3
    busy_s = asked_always(of(clock), clock, takes_s, hours * 3600, rests_s)
    assert busy_s <= SHARE * hours * 3600 + AT_ONCE_S + (hours + 1) * takes_s


def test_one_that_takes_long_is_forgiven_once_in_an_hour(clock):
    slow = of(clock)
    slow.late(ALICE, 3)
    clock.now += FORGIVES_EVERY_S - 1
    slow.late(ALICE, 3)
    assert slow.is_one(ALICE)
    clock.now += 100
    slow.late(ALICE, 3)
    assert not slow.is_one(ALICE)


def test_one_that_takes_long_once_is_no_reason(clock):
    """As the first of its kind may, on an engine that has just started."""
    slow = of(clock)
    slow.late(ALICE, 30.0)
    assert not slow.is_one(ALICE)
    slow.late(ALICE, 0.2)
    assert slow.is_one(ALICE)
    clock.now += 0.2 / SHARE
    assert not slow.is_one(ALICE)


def test_it_is_logged_once_for_each_time(clock, caplog):
    slow = of(clock)
    for _ in range(5):
        slow.late(MALLORY, 0.3)
    assert [r.message for r in caplog.records] == [
        "answers about jobs of user 666 take too long: his get Slurm's own choice for 2 s"
    ]


@pytest.mark.parametrize("took_s", [0.1, 30])
def test_few_users_are_remembered(clock, took_s):
    slow = of(clock)
    for uid in range(3 * MOST_USERS):
        slow.late(uid, took_s)
        clock.now += 0.1
    assert len(slow._debts) == MOST_USERS


def test_who_owes_is_remembered_longer_than_others(clock):
    slow = of(clock)
    slow.late(MALLORY, 3)
    slow.late(MALLORY, 300)
    for uid in range(1000, 1000 + 2 * MOST_USERS):
        slow.late(uid, 0.1)
        clock.now += 0.1
    assert slow.is_one(MALLORY)


def burnt(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@pytest.fixture
def asked_about() -> list[int]:
    """The users whose jobs were decided on."""
    return []


@pytest.fixture
def engine(tmp_path, monkeypatch, asked_about) -> Engine:
    """One whose answers to mallory take a third of a second each."""
    engine = an_engine(tmp_path)
    engine.slow = of(Clock())  # whatever it takes on a busy machine
    for way in ("on_submit", "on_place"):
        plain = getattr(engine.setup.enforcement, way)

        def slow(message, plain=plain):
            asked_about.append(message.uid)
            if message.uid == MALLORY:
                burnt(AT_ONCE_S * 0.6)
            return plain(message)

        monkeypatch.setattr(type(engine.setup.enforcement), way, staticmethod(slow))
    return engine


def test_a_submit_of_somebody_else_is_answered_meanwhile(engine, asked_about):
    def submitted(uid: int, **more: Any) -> bytes:
        asked = Submit(id=4, uid=uid, gpus=2, nodes=1, per_node=2, tasks=1, **more)
        return engine.answer(encode_request(asked)).reply.split()[0]

    for uid in (MALLORY, MALLORY, MALLORY, ALICE):
        assert submitted(uid) == b"pass"
    assert submitted(MALLORY, shape=1) == b"refuse", "Slurm cannot choose its shape"
    assert asked_about == [MALLORY, MALLORY, ALICE]
    assert engine.counters.passes["answers about this user's jobs take too long"] == 2


def test_a_start_of_somebody_else_is_answered_meanwhile(engine):
    def asked(uid: int) -> bytes:
        question = place(node("dgx1", 0xFF, mask(0, 1)), id=9, uid=uid)
        return engine.answer(encode_request(question)).reply.split()[0]

    assert [asked(MALLORY) for _ in range(3)] == [b"use", b"use", b"pass"]
    assert asked(ALICE) == b"use"
