"""However the engine misbehaves, the job goes on within the deadline.

A job that hangs does so for a minute or for ever; ten seconds tell that from a busy machine.
"""

from __future__ import annotations

import socket
import time

import pytest

GPU_JOB = {"tres_per_node": "gres/gpu:2"}


#: Where the time is to run out: shorter than what `slow_half_lines` takes.
RUNS_OUT = pytest.mark.parametrize("deadline_ms", [250])

OK = "ok id={id} set.req_nodes=n1\n"


def passed_through(result):
    assert (result.rc, result.writes, result.user) == (0, [], [])
    assert result.elapsed_s < 10
    return result.log


def silent(peer, request):
    time.sleep(60)


def drip(peer, request):
    while True:
        peer.sendall(b"x")
        time.sleep(0.01)


def ten_megabytes(peer, request):
    peer.sendall(b"ok id=1 set.features=" + b"x" * 10_000_000)


def half_a_line_then_close(peer, request):
    peer.sendall(b"ok id=1 set.req_no")
    peer.shutdown(socket.SHUT_RDWR)


def close(peer, request):
    peer.shutdown(socket.SHUT_RDWR)


def slow_half_lines(peer, request):
    peer.sendall(b"ok id=1 ")
    time.sleep(0.5)
    peer.sendall(b"set.req_nodes=n1\n")


def text(payload):
    def behave(peer, request):
        peer.sendall(payload)

    return behave


@RUNS_OUT
@pytest.mark.parametrize(
    "behaviour",
    [
        pytest.param(silent, id="silent"),
        pytest.param(drip, id="one byte at a time without end"),
        pytest.param(slow_half_lines, id="the second half of the line too late"),
    ],
)
def test_the_job_goes_on_when_the_time_is_over(lua, engine, behaviour):
    engine.behaviour = behaviour
    (line,) = passed_through(lua.submit(**GPU_JOB))
    assert "timeout" in line


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        pytest.param(ten_megabytes, "longer than 65536 bytes", id="a reply of 10 MB"),
        pytest.param(half_a_line_then_close, "closed", id="half a line, then closed"),
        pytest.param(close, "closed", id="closed without a word"),
        pytest.param(text(b"\n"), "not a reply to request 1", id="an empty line"),
        pytest.param(text(b"\x00\xff\x1b]\n"), "not a reply to request 1", id="garbage"),
        pytest.param(text(b"HTTP/1.1 400 Bad\r\n"), "not a reply", id="another server"),
        pytest.param(text(b"ok id=77 set.req_nodes=n1\n"), "not a reply", id="an id to come"),
        pytest.param(text(b"error id=0 message=no\n"), "not a reply", id="an error without id"),
        pytest.param(text(b"ok id= set.req_nodes=n1\n"), "not a reply", id="an empty id"),
    ],
)
def test_the_job_goes_on_when_the_engine_is(lua, engine, behaviour, reason):
    engine.behaviour = behaviour
    (line,) = passed_through(lua.submit(**GPU_JOB))
    assert reason in line


def test_garbage_reaches_the_log_as_printable_text(lua, engine):
    engine.behaviour = text(b"\x00\xff\x1b[2J" + b"\x80" * 500 + b"\n")
    (line,) = lua.submit(**GPU_JOB).log
    assert line.isascii()
    assert line.isprintable()
    assert len(line) < 400


@pytest.mark.parametrize("left", ["its socket", "nothing", "a directory"])
def test_the_job_goes_on_where_the_engine_left(lua, engine, left):
    engine.stop()
    if left != "its socket":
        engine.path.unlink()
    if left == "a directory":
        engine.path.mkdir()
    assert "connect" in passed_through(lua.submit(**GPU_JOB))[0]


@RUNS_OUT
def test_the_job_goes_on_when_a_stopped_engine_accepts_nothing(lua, engine):
    """As under SIGSTOP: the kernel connects until the backlog is full, nobody answers."""
    engine.stop()
    engine.start(backlog=1, accepts=False)
    waiting = []
    for _ in range(4):
        waiting.append(socket.socket(socket.AF_UNIX))
        waiting[-1].setblocking(False)
        waiting[-1].connect_ex(str(engine.path))
    passed_through(lua.submit(**GPU_JOB))


def test_one_connection_serves_many_submits(lua, engine):
    engine.answers(OK)
    for _ in range(5):
        assert lua.submit(**GPU_JOB).job["req_nodes"] == "n1"
    assert engine.connections == 1


def test_a_restarted_engine_is_found_within_the_same_submit(lua, engine):
    engine.answers(OK)
    lua.submit(**GPU_JOB)
    engine.stop()
    engine.start()
    result = lua.submit(**GPU_JOB)
    assert result.job["req_nodes"] == "n1"
    assert result.log == []


def test_a_late_reply_to_an_earlier_request_is_dropped(lua, engine):
    engine.answers(OK)
    lua.submit(**GPU_JOB)
    engine.answers("refuse id={late} message=late\n" + OK)
    result = lua.submit(**GPU_JOB)
    assert (result.rc, result.job["req_nodes"]) == (0, "n1")


def test_a_reply_in_many_pieces_is_put_together(lua, engine):
    def pieces(peer, request):
        for byte in OK.replace("{id}", "1").encode():
            peer.sendall(bytes([byte]))

    engine.behaviour = pieces
    assert lua.submit(**GPU_JOB).job["req_nodes"] == "n1"


def test_more_than_was_asked_ends_the_connection_but_the_reply_counts(lua, engine):
    engine.answers(OK + "refuse id=2 message=forged\n")
    assert lua.submit(**GPU_JOB).job["req_nodes"] == "n1"
    engine.answers(OK)
    assert lua.submit(**GPU_JOB).rc == 0
    assert engine.connections == 2


def test_a_long_request_survives_a_peer_that_reads_slowly(lua, engine):
    """Partial writes: names and hint at their bounds, every byte encoded as three."""
    engine.answers(OK)
    fields = dict.fromkeys(("account", "partition"), "é" * 128)
    result = lua.submit(**GPU_JOB, **fields, comment="gpu-topo:" + "%" * 1024)
    assert result.job["req_nodes"] == "n1"
    assert len(engine.requests[0]) > 3000


@RUNS_OUT
def test_after_a_failure_the_engine_is_left_alone_and_then_found_again(lua, engine, eventually):
    engine.behaviour = silent
    assert len(lua.submit(**GPU_JOB).log) == 1
    asked = len(engine.requests)
    assert lua.submit(**GPU_JOB).log == []
    assert len(engine.requests) == asked
    engine.answers(OK)
    logs = []

    def answered():
        result = lua.submit(**GPU_JOB)
        logs.extend(result.log)
        return result.job.get("req_nodes") == "n1"

    eventually(answered)
    assert len(logs) == 1
    assert "answers again" in logs[0]
    assert lua.submit(**GPU_JOB).log == []
