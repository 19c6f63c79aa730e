"""The engine's answers as lines, its counters, its reload; and the real process."""

import asyncio
import json
import logging
import os
import re
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from engine_in_tests import an_engine, written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machines_in_tests import BASIC, mask, node, place

from bench.request_lines import encode_request
from slurm_plugin.base import client
from slurm_plugin.base.node_lines import NodesPart
from slurm_plugin.base.protocol import (
    MAX_REPLY_BYTES,
    Submit,
    split,
    unquote,
)
from slurm_plugin.cli.site.status import _text
from slurm_plugin.decide import decision_log
from slurm_plugin.errors import EngineDown
from slurm_plugin.serve import amiss, setup
from slurm_plugin.serve.server import bind
from slurm_plugin.serve.service import Engine

ROOT = Path(__file__).resolve().parents[3]
SUBMIT = Submit(id=4, uid=1000, gpus=2, nodes=1, per_node=2, tasks=1)


def ask(engine: Engine, line: bytes) -> tuple[str, dict[str, str]]:
    answer = engine.answer(line)
    assert answer.reply is not None
    if answer.after:
        answer.after()
    verb, pairs = split(answer.reply)
    return verb, {key: unquote(value) for key, value in pairs}


def submitted(engine: Engine, **more: str) -> tuple[str, dict[str, str]]:
    fields = {name: getattr(SUBMIT, name) for name in Submit.__slots__} | more
    return ask(engine, encode_request(Submit(**fields)))


def test_a_place_line_is_answered_and_logged_after_the_reply(engine, tmp_path):
    answer = engine.answer(encode_request(place(node("dgx1", 0xFF, mask(0, 1)), id=9)))
    assert answer.reply.startswith(b"use id=9 node=dgx1/9 note=")
    assert engine.log.written == 0
    answer.after()
    engine.log.close()
    (record,) = decision_log.read(engine.setup.config.decision_log)
    assert record.job == 7
    assert record.time.endswith("+00:00")
    assert record.took_ms > 0


@pytest.mark.parametrize(
    ("hint", "kept"),
    [(" sensitive=no, pattern=tree ", "pattern=tree,sensitive=no"), ("off", "off"), ("", "")],
)
def test_a_good_hint_goes_into_the_admin_comment_in_its_canonical_form(engine, hint, kept):
    """And the answer may be used again."""
    comment = {"set.admin_comment": f"[gpu-topo: {kept}]"} if kept else {}
    verb = "ok" if kept else "pass"
    assert submitted(engine, hint=hint) == (verb, {"id": "4", "keep_s": "1", **comment})


@pytest.mark.parametrize(
    ("partition", "verb"), [("gpu", "refuse"), ("watched", "pass"), ("quiet", "pass")]
)
def test_a_bad_hint_is_refused_with_one_line_where_hints_are_enforced(engine, partition, verb):
    told, values = submitted(engine, hint="pattern=knot", partition=partition)
    assert told == verb
    message = values.get("message", "")
    assert message.startswith("gpu-topo: pattern: 'knot'; expected ring") == (verb == "refuse")


@pytest.mark.parametrize("hint", ["a]b", "x|y", "%0a", "\n", '"', "'", "a" * 3000, "é"])
def test_no_hint_reaches_the_admin_comment_unread(engine, hint):
    assert submitted(engine, hint=hint)[0] == "refuse"


def test_garbage_is_an_error_and_ends_the_connection(engine):
    answer = engine.answer(b"\xff\xfe garbage")
    assert answer.close
    assert answer.reply.startswith(b"error id=0 message=")
    assert b"Traceback" not in answer.reply


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(
        st.binary(max_size=200),
        st.sampled_from([b"place", b"submit", b"ping", b"status", b"ended"]).flatmap(
            lambda verb: st.lists(
                st.from_regex(
                    rb"(id|job|array|uid|node|hint|gpus|nodes)=[!-~]{0,20}", fullmatch=True
                )
            ).map(lambda words: b" ".join([verb, *words]))
        ),
    )
)
def test_every_line_gets_one_line_or_none_and_never_a_traceback(engine, line):
    reply = engine.answer(line.replace(b"\n", b"")).reply
    assert reply is None or (reply.endswith(b"\n") and reply.count(b"\n") == 1)
    assert reply is None or (len(reply) <= MAX_REPLY_BYTES and b"Traceback" not in reply)


def test_a_notice_is_never_answered_and_says_who_runs(engine):
    began, neighbours = time.perf_counter(), engine.setup.neighbours
    neighbours.is_wanted = True
    assert engine.answer(b"started job=1 array=0 node=dgx1/3").reply is None
    assert neighbours.status()["jobs"] == 1
    assert engine.answer(b"ended job=1 array=0").reply is None
    assert neighbours.status()["jobs"] == 0
    took_ms = engine.status()["answer_ms"]["started"]["max"]
    assert took_ms < (time.perf_counter() - began) * 1e3


@pytest.mark.parametrize(
    ("said", "known", "counts"),
    [("", "pattern=tree", "pattern=tree"), ("off", "pattern=tree", "off"), ("", "", "")],
    ids=["overwritten", "another one", "none"],
)
def test_a_hint_that_others_overwrote_counts_at_the_jobs_start(
    engine, monkeypatch, said, known, counts
):
    monkeypatch.setattr(engine.setup.keeper.store, "hint_of", lambda *job: known)
    ask(engine, encode_request(place(node("dgx1", 0xFF, mask(0, 1)), hint=said)))
    engine.log.close()
    (record,) = decision_log.read(engine.setup.config.decision_log)
    assert record.hint == counts


def test_the_kill_switch_passes_everything(engine, tmp_path, caplog):
    (tmp_path / "off").touch()
    assert ask(engine, encode_request(place(node("dgx1", 0xFF, 3))))[0] == "pass"
    assert submitted(engine, hint="pattern=knot")[0] == "pass"
    assert not caplog.records
    (tmp_path / "off").unlink()
    assert ask(engine, encode_request(place(node("dgx1", 0xFF, 3))))[0] == "use"


def test_a_bug_in_the_enforcement_is_a_pass_and_a_traceback_in_the_log_only(
    engine, monkeypatch, caplog
):
    def broken(_asked: object) -> None:
        raise RuntimeError("bug")

    monkeypatch.setattr(engine.setup.enforcement, "on_place", broken)
    with caplog.at_level(logging.ERROR):
        assert ask(engine, encode_request(place(node("dgx1", 0xFF, 3))))[0] == "pass"
    assert "bug" in caplog.text


def test_status_counts_what_was_answered(engine):
    ask(engine, encode_request(place(node("dgx1", 0xFF, 3))))
    ask(engine, encode_request(place(node("alien", 0xFF, 3))))
    engine.answer(b"garbage")
    told = json.loads(ask(engine, b"status id=1")[1]["json"])
    assert told["messages"] == {"place": 2, "malformed": 1}
    assert told["replies"] == {"use": 1, "pass": 1, "error": 1}
    assert told["passes"] == {"node left to Slurm": 1}
    assert 0 < told["answer_ms"]["place"]["p50"] <= told["answer_ms"]["place"]["p99"]
    assert told["nodes"] == 5


def test_status_says_how_many_submits_the_bridge_passed_unasked(engine):
    """As it told last: it counts anew when slurmctld loads it again."""
    for out in (3, 7, 2):
        submitted(engine, budget_out=out)
        assert engine.status()["budget_out"] == out


def test_a_bridge_of_an_earlier_release_tells_no_number(engine):
    assert ask(engine, b"submit id=4 uid=1000 gpus=2 nodes=1 per_node=2 tasks=1\n")[0] == "pass"
    assert engine.status()["budget_out"] == 0


def test_a_status_of_many_broken_nodes_still_fits_its_reply(tmp_path):
    nodes = 'nodes: [{{nodes: "n[0001-5000]", topology: collected}}]'
    engine = an_engine(tmp_path, "state_dir: {folder}\n" + nodes)
    told = json.loads(ask(engine, b"status id=1")[1]["json"])
    assert told["nodes_left_to_slurm_count"] == 5000
    engine.log.close()


def test_nodes_that_slurm_counts_otherwise_or_nobody_declared_are_left_to_slurm(engine):
    names, gpus = ["dgx1", "dgx2", "new1", "cpu1"], [4, 8, 8, 0]
    told = NodesPart(1, 7, 1, 1, 0, names, gpus, [0] * 4, [1] * 4, [""] * 4)
    assert asyncio.run(engine.answer(encode_request(told)).later).startswith(b"ok")
    status = engine.status()
    assert status["nodes_left_to_slurm"] == {
        "dgx1": "Slurm says 4 GPUs, the topology 8",
        "new1": "not declared in gputopo.yaml",
    }
    assert status["nodes_left_to_slurm_count"] == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"reload_error": "gputopo.yaml:3: x"},
            "NOT RELOADED: gputopo.yaml:3: x; in force is what",
        ),
        (
            {"config_changed": True},
            "NOT RELOADED since it changed: in force is what was read at 20",
        ),
        ({"not_writable": ["/var/lib/x"]}, "NOT WRITABLE: /var/lib/x: see gputopo doctor"),
        ({"not_listening": ["metrics_listen: taken"]}, "NOT LISTENING: metrics_listen: taken"),
        ({}, ""),
    ],
)
def test_status_says_where_what_runs_is_not_what_is_meant(engine, changes, words):
    text = _text(engine.status() | changes)
    assert words in text
    assert ("NOT " in text) == bool(words)


def test_folders_in_which_the_engine_may_not_write_are_told(tmp_path, monkeypatch):
    log = tmp_path / "decisions.jsonl"
    assert amiss.not_writable([tmp_path, tmp_path / "made" / "later"], log) == []
    (tmp_path / "file").touch()
    below = tmp_path / "file" / "below"
    assert amiss.not_writable([below, below, tmp_path], log) == [str(below)]
    log.touch()
    assert amiss.not_writable([below, tmp_path], log) == [str(below)]
    # Root, who runs the tests, may write everything.
    monkeypatch.setattr(amiss.os, "access", lambda path, _: path != log)
    assert amiss.not_writable([tmp_path], log) == [str(log)]


def reload(engine: Engine) -> bytes:
    answer = engine.answer(b"reload id=3")
    assert answer.reply is None
    assert answer.later is not None
    return asyncio.run(answer.later)


def test_a_reload_takes_the_new_configuration(engine, tmp_path):
    written(tmp_path, BASIC.replace("mode: enforce", 'mode: "off"'))
    assert reload(engine) == b"ok id=3\n"
    assert ask(engine, encode_request(place(node("dgx1", 0xFF, 3))))[0] == "pass"


def test_a_wrong_file_at_reload_keeps_the_old_configuration(engine, tmp_path):
    written(tmp_path, "sockte: /x\n")
    reply = reload(engine)
    assert reply.startswith(b"error id=3 message=")
    assert b"sockte" in reply
    assert ask(engine, encode_request(place(node("dgx1", 0xFF, 3))))[0] == "use"
    status, read_at = engine.status(), engine.read_at
    assert "sockte: unknown key" in status["reload_error"]
    assert status["config_digest"] == engine.setup.config.digest
    asyncio.run(engine.reload(engine.setup.config))  # as when marks change
    assert "sockte" in engine.status()["reload_error"]
    written(tmp_path, BASIC)
    assert reload(engine) == b"ok id=3\n"
    assert engine.status()["reload_error"] == ""
    assert engine.status()["config_read_at"] >= round(read_at, 3)


async def test_of_two_reloads_at_once_the_later_one_counts():
    """However long the first one takes to read."""

    def a_setup() -> SimpleNamespace:
        config = SimpleNamespace(path=Path("x"), deadline_ms=1, decision_log=None, socket=None)
        return SimpleNamespace(config=config, machines={}, policies=list)

    first, later = a_setup(), a_setup()
    readings = iter([(first, 0.05), (later, 0.0)])

    def load(_: Path) -> SimpleNamespace:
        found, pause_s = next(readings)
        time.sleep(pause_s)
        return found

    engine = Engine(a_setup(), SimpleNamespace(), load)
    assert await asyncio.gather(engine.reload(), engine.reload()) == [None, None]
    assert engine.setup is later


# -- the process ------------------------------------------------------------


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    path = written(tmp_path)
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(str(tmp_path / "notify"))
    notify.settimeout(30)
    environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}
    command = [sys.executable, "-c", "from slurm_plugin.cli import main; main()"]
    with (tmp_path / "engine.log").open("wb") as log:
        started = subprocess.Popen(
            [*command, "serve", "--config", str(path)], stderr=log, env=environment
        )
    try:
        assert notify.recv(1000).startswith(b"READY=1\nSTATUS=5 nodes declared")
        yield started
    finally:
        started.kill()
        started.wait()
        notify.close()


def until_status(path: Path, wanted: str) -> None:
    deadline = time.monotonic() + 10
    while client.status(path)["partitions"]["default"]["mode"] != wanted:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_process_answers_reloads_at_sighup_and_ends_at_sigterm(process, tmp_path):
    path = tmp_path / "engine.sock"
    verb, values = client.ask(path, encode_request(place(node("dgx1", 0xFF, mask(0, 1)), id=5)))
    assert (verb, values["node"]) == ("use", "dgx1/9")
    written(tmp_path, BASIC.replace("mode: enforce", "mode: observe"))
    process.send_signal(signal.SIGHUP)
    until_status(path, "observe")
    written(tmp_path, "nonsense")
    process.send_signal(signal.SIGHUP)
    line = encode_request(place(node("dgx1", 0xFF, mask(0, 1)), id=6))
    assert client.ask(path, line)[0] == "pass"
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    assert not path.exists()
    records = list(decision_log.read(setup.load(written(tmp_path)).config.decision_log))
    assert [record.applied for record in records] == [True, False]
    with pytest.raises(EngineDown, match="no such socket: the engine is not running"):
        client.ask(path, b"ping id=1\n")


def test_the_process_writes_its_status_for_the_group_and_takes_it_along(process, tmp_path):
    path = client.status_file(tmp_path / "engine.sock")
    deadline = time.monotonic() + 10
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    first = json.loads(path.read_text())
    assert first["status"].keys() == client.status(tmp_path / "engine.sock").keys()
    while json.loads(path.read_text())["at_s"] == first["at_s"]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    assert not path.exists()


def test_without_descriptors_the_engine_says_little_and_answers_when_it_has_some(process, tmp_path):
    path, log = tmp_path / "engine.sock", tmp_path / "engine.log"
    assert client.ask(path, b"ping id=1\n")
    soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    # A new one would have to be 0, 1 or 2, which are taken; those that are open stay open.
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (3, hard))
    with pytest.raises(EngineDown):
        client.ask(path, b"ping id=1\n", timeout_s=3)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (soft, hard))
    assert client.ask(path, b"ping id=1\n", timeout_s=30)
    said = log.read_text().splitlines()
    assert [line for line in said if "Too many open files; raise LimitNOFILE" in line]
    assert len(said) < 20, said


def test_a_killed_engine_leaves_a_socket_that_the_next_one_takes_over(process, tmp_path):
    path = tmp_path / "engine.sock"
    process.kill()
    process.wait()
    assert path.exists()
    with pytest.raises(EngineDown, match="nobody listens"):
        client.ask(path, b"ping id=1\n")
    bind(path).close()


def test_the_systemd_unit_fits_the_engine():
    unit = (ROOT / "slurm_plugin" / "serve" / "systemd" / "gputopo.service").read_text()
    for line in (
        "Type=notify",
        "WatchdogSec=10",
        "ExecReload=/bin/kill -HUP $MAINPID",
        "RuntimeDirectory=gputopo",
        "Restart=always",
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    ):
        assert line in unit.splitlines()
    assert "Requires" not in unit


def test_the_unit_leaves_the_engine_no_privilege_and_little_else():
    """6.4 of 10 before the hardening; 1.6 with it, most of which is the network."""
    unit = ROOT / "slurm_plugin" / "serve" / "systemd" / "gputopo.service"
    lines = unit.read_text().splitlines()
    assert "CapabilityBoundingSet=" in lines
    assert not [line for line in lines if line.startswith("AmbientCapabilities=") and line[20:]]
    # The user is slurmctld's, too, whose memory it would remove.
    assert "RemoveIPC=yes" not in lines
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "--offline" in done.stderr:
        pytest.skip("this systemd-analyze judges no files")
    found = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
    assert found is not None, done.stderr
    assert float(found[1]) <= 2.0


#: Linux's own MemoryDenyWriteExecute=, from 6.3 on.
NO_WRITE_EXECUTE = """
import ctypes, mmap, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):
    sys.exit(77)
try:
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    sys.exit("memory both written and executed")
except PermissionError:
    pass
ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 1)()
import numpy, msgspec, yaml, networkx
assert numpy.linalg.inv(numpy.eye(100)).sum() == 100
try:
    from ortools.sat.python import cp_model
except ImportError:
    pass
else:
    model = cp_model.CpModel()
    model.maximize(model.new_int_var(0, 9, "x"))
    assert cp_model.CpSolver().solve(model) == cp_model.OPTIMAL
from slurm_plugin.cli import main
sys.argv = ["gputopo", "place", "--machine", "dgx1v", "--free", "0-7", "--gpus", "2"]
main()
"""


def test_the_engines_parts_work_where_no_memory_is_both_written_and_executed():
    done = subprocess.run(
        [sys.executable, "-c", NO_WRITE_EXECUTE], capture_output=True, text=True, check=False
    )
    if done.returncode == 77:
        pytest.skip("this kernel has no PR_SET_MDWE")
    assert done.returncode == 0, done.stderr
