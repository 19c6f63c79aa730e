"""What passes over a donor's connections, by the node's own kernel."""

import asyncio
import contextlib
import socket
import time
from types import SimpleNamespace

import pytest

from slurm_plugin.base.job_notes import donor
from slurm_plugin.base.job_notes.donor import DonorReport, Passed
from slurm_plugin.node.remote import donor as node
from slurm_plugin.node.remote.meter import Meter


def talk(listener: socket.socket, calls: int, keep: bool = False) -> list[socket.socket]:
    """Calls of 1000 bytes, each answered by 5000."""
    near = socket.create_connection(listener.getsockname())
    far, _ = listener.accept()
    for _ in range(calls):
        near.sendall(bytes(1000))
        assert len(far.recv(1000, socket.MSG_WAITALL)) == 1000
        far.sendall(bytes(5000))
        assert len(near.recv(5000, socket.MSG_WAITALL)) == 5000
    if keep:
        return [near, far]
    near.close()
    far.close()
    return []


async def test_connections_count_whether_they_are_open_or_ended_and_those_of_others_do_not():
    with (
        socket.create_server(("127.0.0.1", 0)) as own,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        meter = Meter(own.getsockname()[1], 0)
        meter.start()
        talk(other, 7)
        talk(own, 3)
        talk(own, 2)
        # The kernel tells of an end when the last of it is acknowledged.
        for _ in range(100):
            if meter.passed().received >= 5000:
                break
            await asyncio.sleep(0.02)
        ended = meter.passed()
        open_ones = talk(own, 4, keep=True)
        both = meter.passed()
        for one in open_ones:
            one.close()
        meter.close()
    # The end of a connection counts as a byte.
    assert 5000 <= ended.received <= 5002
    assert 25000 <= ended.sent <= 25002
    assert 5 <= ended.packets <= 10
    assert 4000 <= both.received - ended.received <= 4001
    assert both.packets - ended.packets >= 4


def test_a_donors_last_word_says_it():
    said = donor.ready(7, 50001, Passed(12, 34, 5))
    assert said == "gpu-donor ready of=7 port=50001 in=12 out=34 packets=5"
    assert DonorReport.read_from(said) == DonorReport(7, 50001, None, Passed(12, 34, 5))
    assert DonorReport.read_from("gpu-donor ready of=7 port=50001").passed == Passed()
    assert DonorReport.read_from(f"{said} and=more") is None
    idle = donor.ready(7, 50001, Passed(12, 34, 5), 1795488000)
    assert idle == f"{said} idle=1795488000"
    assert DonorReport.read_from(idle).idle_since == 1795488000
    assert DonorReport.read_from(f"{said} idle=soon") is None


def test_open_connections_over_which_nothing_passes_are_idle_until_something_does():
    """By the kernel's clocks, and over all of them together."""
    with socket.create_server(("127.0.0.1", 0)) as own:
        meter = Meter(own.getsockname()[1])
        assert meter.idle_s() == 0
        near, far = talk(own, 1, keep=True)
        with near, far:
            time.sleep(0.3)
            assert 0.25 <= meter.idle_s() < 1
            with contextlib.ExitStack() as others:
                for one in talk(own, 1, keep=True):
                    others.enter_context(one)
                assert meter.idle_s() < 0.2
            near.sendall(b"asked")
            assert meter.idle_s() < 0.2
    assert meter.idle_s() == 0


def test_a_donor_says_once_since_when_nothing_passes_and_when_something_does(monkeypatch):
    said, silence = [], iter([0.0, 25.0, 25.3, 0.0])

    class Said:
        def passed(self):
            return Passed(1, 1, 1)

        def idle_s(self):
            return next(silence)

    ticks = iter(range(100))
    monkeypatch.setattr(node, "POLL_S", 0.0)
    monkeypatch.setattr(node.time, "time", lambda: 1000.0 + next(ticks))
    monkeypatch.setattr(node.slurm, "say", lambda _, text: said.append(text))
    with pytest.raises((StopIteration, RuntimeError)):
        asyncio.run(node.tell(SimpleNamespace(job_id=8, parent=7), 50001, Said()))
    assert [text.partition("packets=1")[2] for text in said] == ["", " idle=975", ""]
