"""With several controllers only the engine beside the slurmctld in charge changes Slurm."""

import asyncio
import logging
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from engine_in_tests import an_engine
from genie_in_tests import TwoNodes
from machines_in_tests import BASIC, named

from slurm_plugin.cli.site.status import _text
from slurm_plugin.errors import SlurmError
from slurm_plugin.serve import charge as charging
from slurm_plugin.serve import setup
from slurm_plugin.serve.charge import Charge, Controllers
from slurm_plugin.serve.loops.gates import GatesLoop
from slurm_plugin.serve.loops.lending import LendingLoop
from slurm_plugin.serve.loops.neighbours import NeighboursLoop
from slurm_plugin.serve.loops.network import NetworkLoop
from slurm_plugin.serve.loops.queue_loop import QueueLoop
from slurm_plugin.serve.loops.shaping import ShapingLoop
from slurm_plugin.serve.loops.site import SiteLoop
from slurm_plugin.serve.run import _charge
from slurm_plugin.slurm.clients.command_line import SlurmClient
from slurm_plugin.slurm.interface import JobUpdate

SHOWN = """Configuration data as of 2026-11-23T14:00:00
SLURM_VERSION           = 24.11.5
SlurmctldHost[0]        = ctl(10.0.0.1)
SlurmctldHost[1]        = ctl2
StateSaveLocation       = {folder}

Slurmctld(primary) at ctl is UP
Slurmctld(backup) at ctl2 is UP
"""
ALONE = SHOWN.replace("SlurmctldHost[1]        = ctl2\n", "")


def beat(folder: Path, index: int) -> None:
    """The slurmctld of this index is in charge, and writes it as Slurm does."""
    new = folder / "heartbeat.new"
    new.write_bytes(struct.pack("!QQ", int(time.time()), index))
    new.replace(folder / "heartbeat")


def controllers(folder: Path, shown: str = SHOWN) -> Controllers:
    return Controllers.named_in(SlurmClient(lambda _: shown.format(folder=folder)).config())


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("host", ["ctl", "CTL.site.org", "ctl2", "ctl2.site.org"])
def test_who_wrote_the_heartbeat_is_in_charge(tmp_path, index, host):
    beat(tmp_path, index)
    verdict = controllers(tmp_path).verdict(host)
    assert verdict.is_ours == (host.lower().partition(".")[0] == ["ctl", "ctl2"][index])
    assert verdict.why == f"slurmctld on {['ctl', 'ctl2'][index]} is in charge"
    assert not verdict.is_doubtful


@pytest.mark.parametrize("host", ["ctl", "a-pod"])
def test_where_there_is_one_controller_it_is_in_charge_whatever_its_host_is_called(tmp_path, host):
    beat(tmp_path, 1)  # an old file
    alone = controllers(tmp_path, ALONE)
    assert replace(alone, heartbeat=alone.last_heartbeat()).verdict(host).is_ours


#: What leaves it in doubt: what is in the file (None: there is none), the host, what is said.
DOUBTS: list[tuple[str, bytes | None, str, str]] = [
    ("no heartbeat yet", None, "ctl", "No such file"),
    ("an empty file", b"", "ctl", "other than the 16 bytes"),
    ("one of before 18.08", b"12345678", "ctl", "other than the 16 bytes"),
    ("something else", b"x" * 17, "ctl", "other than the 16 bytes"),
    ("a controller that is gone", struct.pack("!QQ", 1, 2), "ctl", "controller 2 of 2"),
    ("a huge index", b"\xff" * 16, "ctl", "of 2"),
    ("a host of another name", struct.pack("!QQ", 1, 0), "login1", "none of the controllers"),
    ("a name that begins alike", struct.pack("!QQ", 1, 0), "ct", "none of the controllers"),
]


@pytest.mark.parametrize(("written", "host", "says"), named(DOUBTS))
def test_in_doubt_nobody_is_in_charge(tmp_path, written, host, says):
    if written is not None:
        (tmp_path / "heartbeat").write_bytes(written)
    verdict = controllers(tmp_path).verdict(host)
    assert (verdict.is_ours, verdict.is_doubtful) == (False, True)
    assert says in verdict.why


def test_a_heartbeat_that_is_just_being_replaced_leaves_nothing_in_doubt(tmp_path, monkeypatch):
    """Slurm 24.11 removes the file first; a doubt would stop the engine and start it anew."""
    pauses = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            beat(tmp_path, 0)

    monkeypatch.setattr(charging.time, "sleep", sleep)
    assert controllers(tmp_path).verdict("ctl").is_ours
    assert pauses == [charging.AGAIN_S] * 2


@pytest.mark.parametrize("values", [{}, {"SlurmctldHost[1]": "ctl2"}, {"SlurmctldHost": "ctl"}])
def test_a_reply_without_the_first_controller_is_an_error(values):
    with pytest.raises(SlurmError, match=r"no SlurmctldHost\[0\]"):
        Controllers.named_in(values)


class Seen:
    """A Charge of the host ctl2, with all that it did."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.done, self.shown = folder, list[str](), SHOWN
        self.is_down = False
        self.charge = Charge(self.config, self.gained, self.say, "ctl2")

    def config(self) -> dict[str, str]:
        self.done.append("asked")
        if self.is_down:
            raise SlurmError("slurmctld is down")
        return dict(SlurmClient(lambda _: self.shown.format(folder=self.folder)).config())

    def gained(self) -> None:
        assert not self.charge.is_ours()
        self.done.append("gained")

    def say(self) -> None:
        assert self.charge.is_ours()
        self.done.append("said")

    def looked(self) -> list[str]:
        """What one look led to."""

        async def look() -> None:
            await self.charge.look()
            while self.charge._reading is not None:
                await asyncio.sleep(0.001)

        self.done = []
        asyncio.run(look())
        return self.done


def test_a_takeover_and_the_return_are_told_once_each(tmp_path, caplog):
    beat(tmp_path, 0)
    seen = Seen(tmp_path)
    with caplog.at_level(logging.INFO):
        assert seen.looked() == ["asked"]
        beat(tmp_path, 1)
        assert seen.looked() == ["gained", "said"]
        beat(tmp_path, 1)
        assert seen.looked() == []
        beat(tmp_path, 0)
        assert seen.looked() == []
    assert not seen.charge.is_ours()
    assert [record.getMessage() for record in caplog.records] == [
        "standing by, nothing is changed in Slurm: slurmctld on ctl is in charge",
        "in charge: slurmctld on ctl2 is in charge",
        "standing by, nothing is changed in Slurm: slurmctld on ctl is in charge",
    ]


def test_the_only_controller_forgets_nothing(tmp_path):
    """It has just read what it remembers."""
    seen = Seen(tmp_path)
    seen.shown = ALONE
    assert seen.looked() == ["asked", "said"]


@pytest.mark.parametrize(
    ("boot", "booted"), [("1764000000", 1764000000), ("2026-11-23T14:00:00", 0), (None, 0)]
)
def test_status_says_when_slurmctld_started(tmp_path, boot, booted):
    seen = Seen(tmp_path)
    seen.shown = ALONE if boot is None else ALONE + f"BOOT_TIME               = {boot}\n"
    seen.looked()
    assert seen.charge.status()["charge"]["slurmctld_booted"] == booted


def test_one_that_gets_another_controller_is_in_doubt_until_slurm_was_asked_again(tmp_path):
    """Else both engines would act for the minute until it is asked anyway."""
    seen = Seen(tmp_path)
    seen.shown = ALONE
    seen.looked()
    seen.shown = SHOWN
    beat(tmp_path, 0)
    assert seen.looked() == []
    assert seen.charge.verdict.is_doubtful
    seen.charge._read_at -= charging.DOUBTS_S
    assert seen.looked() == ["asked"]
    seen.looked()
    assert not seen.charge.verdict.is_doubtful
    assert not seen.charge.is_ours()


def test_while_slurm_is_down_nobody_is_in_charge_until_it_was_asked_once(tmp_path, monkeypatch):
    """A standby that knows the controllers needs no answer for the takeover."""
    beat(tmp_path, 1)
    seen = Seen(tmp_path)
    seen.is_down = True
    assert seen.looked() == ["asked"]
    assert not seen.charge.is_ours()
    seen.is_down = False
    assert seen.looked() == ["asked", "gained", "said"]
    beat(tmp_path, 0)
    seen.looked()
    seen.is_down = True
    monkeypatch.setattr(charging, "CONTROLLERS_S", 0.0)
    beat(tmp_path, 1)
    assert sorted(seen.looked()) == ["asked", "gained", "said"]


def test_a_slurm_that_hangs_delays_no_takeover(tmp_path, monkeypatch):
    beat(tmp_path, 0)
    seen = Seen(tmp_path)
    seen.looked()
    monkeypatch.setattr(charging, "CONTROLLERS_S", 0.0)
    answers = threading.Event()
    seen.charge._config = lambda: answers.wait(10) and {}
    beat(tmp_path, 1)

    async def look() -> bool:
        await seen.charge.look()
        is_ours = seen.charge.is_ours()
        answers.set()
        return is_ours

    assert asyncio.run(look())


def test_another_slurm_conf_counts_after_a_reload(tmp_path):
    beat(tmp_path, 0)
    seen = Seen(tmp_path)
    seen.looked()
    seen.shown = ALONE
    assert seen.looked() == []
    seen.charge.heard("reload")
    seen.looked()
    assert seen.looked() == ["said"]


def test_a_file_system_that_hangs_leaves_it_in_doubt(tmp_path, monkeypatch):
    beat(tmp_path, 1)
    seen = Seen(tmp_path)
    assert "said" in seen.looked()
    hangs = threading.Event()
    real = Controllers.verdict
    monkeypatch.setattr(charging, "PATIENCE_S", 0.01)
    monkeypatch.setattr(
        Controllers, "verdict", lambda one, host: hangs.wait(10) and real(one, host)
    )

    async def look() -> str:
        looking = asyncio.create_task(seen.charge.look())
        while seen.charge.is_ours():
            await asyncio.sleep(0.001)
        why = seen.charge.verdict.why
        hangs.set()
        await looking
        return why

    assert asyncio.run(look()) == f"{tmp_path} does not answer"
    assert seen.charge.is_ours()


def test_a_look_that_fails_leaves_it_in_doubt_and_the_next_one_is_made(tmp_path, monkeypatch):
    beat(tmp_path, 1)
    seen = Seen(tmp_path)
    seen.looked()
    real, fails = Controllers.verdict, iter([True, False, False])

    def verdict(one: Controllers, host: str) -> charging.ChargeVerdict:
        if next(fails, False):
            raise ZeroDivisionError
        return real(one, host)

    monkeypatch.setattr(Controllers, "verdict", verdict)
    monkeypatch.setattr(charging, "LOOK_S", 0.001)
    seen.done = []

    async def keep() -> None:
        running = asyncio.create_task(seen.charge.run())
        while "said" not in seen.done:
            assert not running.done()
            await asyncio.sleep(0.001)
        running.cancel()

    asyncio.run(asyncio.wait_for(keep(), 10))
    assert seen.done == ["gained", "said"]


# The loops, and what they change Slurm by.


def stood_by(
    folder: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> tuple[TwoNodes, list[QueueLoop]]:
    """An engine that stands by, with all its loops."""
    slurm = TwoNodes()
    monkeypatch.setattr(setup.choose, "client", lambda _: slurm)
    engine = an_engine(folder, f"{BASIC}enforcement: {mode}\nremote: {{{{allow: yes}}}}\n")
    engine.setup.neighbours.is_wanted = True
    engine.setup.keeper.is_in_charge = lambda: False
    kinds = (GatesLoop, ShapingLoop, LendingLoop, NeighboursLoop, SiteLoop, NetworkLoop)
    return slurm, [kind(engine) for kind in kinds]


@pytest.mark.parametrize("mode", ["select", "slots"])
def test_an_engine_that_stands_by_reads_nothing_and_is_awake_once_it_is_in_charge(
    tmp_path, monkeypatch, mode
):
    slurm, loops = stood_by(tmp_path, monkeypatch, mode)
    engine = loops[0].engine

    def poll() -> None:
        for one in loops:
            asyncio.run(one.poll(time.monotonic()))

    poll()
    assert not slurm.asked
    loops[4]._history = object()
    charge = _charge(engine)
    engine.setup.keeper.is_in_charge = lambda: True
    before = engine.setup.watcher.clock()
    charge._gained()
    charge._say()
    own = loops[0] if mode == "slots" else loops[2]
    assert own.schedule.due <= time.monotonic()
    assert loops[3].schedule.due <= time.monotonic()
    assert engine.setup.watcher._outdated_at >= before
    assert loops[4]._history is None
    poll()
    assert slurm.asked["queue"]


Act = Callable[[setup.Setup], object]
ACTS: list[tuple[str, Act]] = [
    ("an update", lambda one: one.client.update(["1"], JobUpdate(begin_time=0))),
    ("a comment", lambda one: one.client.update(["1"], JobUpdate(admin_comment="x"))),
]


@pytest.mark.parametrize("act", [act for _, act in ACTS], ids=[name for name, _ in ACTS])
def test_a_poll_that_began_before_changes_nothing_any_more(tmp_path, monkeypatch, act):
    slurm, loops = stood_by(tmp_path, monkeypatch, "slots")
    with pytest.raises(SlurmError, match="not in charge: nothing is changed"):
        act(loops[0].engine.setup)
    assert not slurm.asked


def test_what_was_reserved_for_loans_is_forgotten(tmp_path, monkeypatch):
    _, loops = stood_by(tmp_path, monkeypatch, "select")
    site = loops[0].engine.setup
    assert site.reserved is not None
    site.reserved.by_borrower = {1: object()}
    _charge(loops[0].engine)._gained()
    assert site.reserved.by_borrower == {}


def test_status_tells_who_is_in_charge(tmp_path, monkeypatch):
    _, loops = stood_by(tmp_path, monkeypatch, "select")
    engine = loops[0].engine
    charge = _charge(engine)
    assert engine.status()["charge"]["is_doubtful"]
    assert "STANDING BY for 0 s: Slurm has not said yet" in _text(engine.status())
    beat(tmp_path, 0)
    charge._controllers, charge._host = controllers(tmp_path), "ctl2"
    charge._read_at = time.monotonic()
    asyncio.run(charge.look())
    told = engine.status()["charge"]
    assert told.pop("since_s") < 60
    assert told == {
        "is_ours": False,
        "is_doubtful": False,
        "why": "slurmctld on ctl is in charge",
        "controllers": ["ctl", "ctl2"],
        "slurmctld_booted": 0,
    }
    assert "STANDING BY for 0 s: slurmctld on ctl is in charge" in _text(engine.status())
    charge._host = "ctl"
    asyncio.run(charge.look())
    assert "\nin charge for 0 s, of the controllers ctl, ctl2\n" in _text(engine.status())
    charge._controllers = replace(controllers(tmp_path, ALONE), heartbeat=b"")
    (tmp_path / "heartbeat").unlink()
    asyncio.run(charge.look())
    assert "charge" not in _text(engine.status())
