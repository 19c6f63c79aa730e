"""The decision log's lines: each kind through its own writer and the one reader; and what is none.

Whoever writes a new kind of line adds it to `AnyLine`, and its writer here.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from genie_in_tests import a_shaping, submit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loans_in_tests import LOAN
from machines_in_tests import BASIC, basic_decider, mask, node, question

from slurm_plugin.act.gates.released import of_job
from slurm_plugin.act.lending import record
from slurm_plugin.act.lending.choice.offer import Refusal
from slurm_plugin.act.lending.ledger import Lent
from slurm_plugin.base.job_notes.donor import Passed
from slurm_plugin.base.job_notes.records import GateRecord
from slurm_plugin.base.log_lines import AnyLine, Line, LineReader, UseLine, of_plain, plain
from slurm_plugin.base.protocol import Notice, WaitFor
from slurm_plugin.config.sections import DecisionLogConfig
from slurm_plugin.decide import decision_log
from slurm_plugin.decide.decision_log import DecisionLog
from slurm_plugin.decide.record import Build, DecisionRecord, started
from slurm_plugin.serve.loops import order
from slurm_plugin.serve.tally import Tally
from slurm_plugin.slurm.interface import QueuedJob
from slurm_plugin.tell.explain import drawing, machines, search
from slurm_plugin.tell.explain.gains import Gains
from slurm_plugin.tell.explain.log_files import READ_BYTES
from slurm_plugin.tell.explain.story import may_see, story_of
from slurm_plugin.tell.explain.text import in_words
from slurm_plugin.tell.web.decisions import DecisionTail
from slurm_plugin.tell.web.view import decision_row

FULL = 0xFF
JOB = QueuedJob(7, uid=1000, account="research", partition="batch", tres_per_node="gres/gpu:5")
KEPT = GateRecord("gated", {"token": "t", "tpn": "gres/gpu:5", "nodes": "1-", "remote": "1"})
RAILS = BASIC.replace("partitions:", '  - {{nodes: "h[1-2]", topology: dgx-h100}}\npartitions:')


def decisions(folder: Path) -> Iterator[Build]:
    """What the decider writes: each reply, each key of a choice."""
    decider = basic_decider(folder, RAILS)
    pair = node("dgx1", FULL, mask(0, 1))
    for asked in (
        question(pair),
        question(pair, hint="policy=topo-aware,batch=1"),
        question(node("h1", FULL, 0xF), node("h2", 0xF0, 0xF0)),
        question(pair, partition="watched"),
        question(pair, node("alien", FULL), hint="policy=slurm"),
    ):
        yield decider.decide(asked).record
    waits = DecisionRecord(question(pair), "enforce", {}, reply=WaitFor(30, "a pair"))
    yield waits.build


def all_writers(folder: Path) -> list[Build]:
    shaping = a_shaping(folder)
    shaping.on_submit(submit())
    (shape,) = shaping.records.values()
    lent = Lent(71, 7, 1000, "research", "batch", "dgx2", 2, 60, Passed(1, 2, 3))
    return [
        *decisions(folder),
        lambda: started(Notice("started", 7, 6, {"dgx1": 0b11})),
        of_job(shape, JOB),
        of_job(lambda: order._line(JOB, "passed job 2"), JOB),
        record.lent(JOB, KEPT, LOAN, "ends sooner"),
        record.refused(JOB, KEPT, Refusal("had better wait", True)),
        record.over(JOB, KEPT, "the donor is gone", 30),
        record.taken_back(JOB, KEPT, "9"),
        record.ended(lent),
    ]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[Line]:
    return [build() for build in all_writers(tmp_path_factory.mktemp("writers"))]


def kinds(of: type = Line) -> set[type]:
    """Every kind of line that the program defines."""
    return set().union(*map(kinds, of.__subclasses__())) or {of}


def test_what_each_writer_writes_the_one_reader_reads(tmp_path, written):
    config, reader = DecisionLogConfig(tmp_path / "log", 1, 1), LineReader()
    log = DecisionLog(config)
    for line in written:
        log.append(line)
    log.close()
    read = list(decision_log.read(config, reader))
    assert [plain(line) for line in read] == [plain(line) for line in written]
    assert list(map(type, read)) == list(map(type, written))
    assert reader.unread == 0
    assert set(map(type, written)) == kinds() == set(get_args(AnyLine))


def test_the_log_takes_nothing_that_is_no_line(tmp_path):
    log = DecisionLog(DecisionLogConfig(tmp_path / "log", 1, 1))
    with pytest.raises(TypeError, match="no line of the decision log: dict"):
        log.append({"decision": "use", "job": 7})  # type: ignore[arg-type]
    log.close()


@pytest.mark.parametrize(
    "line",
    [
        # As they were written before there was this definition.
        '{"time":"T","took_ms":0.1,"job":7,"array":0,"uid":1,"decision":"lent","why":"sooner",'
        '"host":"dgx1","gpus":[0,1],"donors":[{"node":"dgx2","gpus":[1,2],"job":71}]}',
        '{"time":"T","job":7,"array":0,"uid":1,"decision":"given back","donor":71,"node":"dgx2",'
        '"gpus":2,"seconds":60}',
        '{"time":"T","job":7,"array":0,"decision":"started","gpus":{"dgx1":[0,1]}}',
        '{"time":"T","decision":"order","why":"passed job 2","uid":1,"job":7,"array":0}',
        '{"time":"T","job":7,"decision":"use","a key of later":[1]}',
    ],
)
def test_logs_of_other_releases_stay_readable(line):
    reader = LineReader()
    (read,) = reader.records([line.encode()])
    assert (read.job, read.decision, reader.unread) == (7, json.loads(line)["decision"], 0)


def as_text(**keys: object) -> bytes:
    return msgspec.json.encode({"job": 7, "array": 0, "decision": "use", "uid": 1, **keys})


GARBAGE = [
    b"no json",
    b"\x00" * 300,
    b'{"job":7,"array":0,"decision":"use","why":"\xff\xfe"}',
    b'{"job":7,"array":0,"decision":"use","why":"\\ud800"}',
    b'{"job":7,"array":0,"decision":"use","x":' + b"[" * 100_000,
    b"[" * 100_000,
    b"[1, 2]",
    b"null",
    b'{"job":7,"array":0}',
    as_text()[:-9],
    as_text(decision="of later"),
    as_text(decision=["use"]),
    as_text(job="7"),
    as_text(job=7.5),
    as_text(job=-1),
    as_text(job=10**15),
    b'{"job":7,"array":0,"decision":"use","waited_s":%d}' % (1 << 70),
    as_text(uid=10**15),
    as_text(chosen=[1]),
    as_text(chosen={"gpus": [0, 1]}),
    as_text(chosen={"gpus": {"dgx1": 3}}),
    as_text(chosen={"gpus": {"dgx1": [-3]}}),
    as_text(chosen={"gpus": {"dgx1": [10**15]}}),
    as_text(chosen={"effbw_gbps": "fast"}),
    as_text(slurm=7),
    as_text(waited_s=10**18),
    as_text(took_ms="x"),
    as_text(took_ms=1)[:-1] + b',"took_ms":1e999}',
    as_text(decision="lent", host="dgx1", gpus={"dgx1": [1]}, donors=[]),
    as_text(decision="lent", host="dgx1", gpus=[1], donors=[{"node": "dgx2"}]),
    as_text(decision="started", gpus=[1]),
    as_text(decision="shape", shape="1x4", service="x", deadline=10**18, allowance_s=1),
]


@pytest.mark.parametrize("line", GARBAGE, ids=lambda line: repr(line[:60]))
def test_a_line_that_is_none_of_ours_costs_itself_alone_and_is_counted(tmp_path, line):
    good = as_text(why="placed")
    path = tmp_path / "log"
    path.write_bytes(good + b"\n" + line + b"\n\n" + good + b"\n")
    config, reader = DecisionLogConfig(path, 1, 1), LineReader()
    tail = DecisionTail(config)
    assert [one.job for one in decision_log.read(config, reader)] == [7, 7]
    assert reader.unread == 1
    assert tail.read()
    assert [decision.why for _, decision in tail.shown] == ["placed", "placed"]
    assert tail.left_out.startswith("1 line of it cannot be read")
    assert len(search.LogIndex(config).find(7)) == 2


def test_explain_says_how_many_lines_about_the_job_it_left_out(tmp_path):
    path, reader = tmp_path / "log", LineReader()
    path.write_bytes(b'{"job":7,"decision":"use"}\n{"job":7,"decision":3}\n{"job":8,"array":0,\n')
    records = search.LogIndex(DecisionLogConfig(path, 1, 1)).find(7, reader)
    words = in_words(story_of(7, records, "decision log", reader.unread))
    assert words.endswith("left out      lines of the log that cannot be read: 1")


def test_what_has_no_end_of_line_is_passed_over_and_not_kept_in_memory(tmp_path):
    config = DecisionLogConfig(tmp_path / "log", 1, 1)
    config.path.write_bytes(b"x" * (READ_BYTES + 10) + b"\n" + as_text() + b"\n" + b"y" * 99)
    tail = DecisionTail(config)
    tail.read()
    assert tail.left_out[:6] == "1 line"
    assert [decision.job for _, decision in tail.shown] == [7]
    assert len(search.LogIndex(config).find(7)) == 1


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=8), one, max_size=3),
    max_leaves=6,
)


def damaged(data: st.DataObject, value: Any) -> Any:
    """The value with one of its parts taken away or made another one."""
    if isinstance(value, dict) and value and data.draw(st.booleans()):
        key = data.draw(st.sampled_from(sorted(value)))
        if data.draw(st.booleans()):
            return {name: one for name, one in value.items() if name != key}
        return value | {key: damaged(data, value[key])}
    if isinstance(value, list) and value and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(value) - 1))
        return [*value[:at], damaged(data, value[at]), *value[at + 1 :]]
    return data.draw(VALUES)


def look(lines: list[bytes]) -> None:
    """Everybody who reads the log, at these lines."""
    tail, records = DecisionTail(None), list(LineReader().records(lines))
    tail.take(records)
    msgspec.json.encode([decision_row(decision) for _, decision in tail.shown])
    gains, tally = Gains(), Tally()
    for one in search.attributed(records):
        gains.add(one)
        tally.add(one)
    json.dumps(gains.summary())
    for job in {one.job for one in records}:
        own = [one for one in records if one.job == job]
        story = story_of(job, own, "decision log")
        json.dumps(story)
        assert in_words(story)
        drawing.drawn(story, machines.shown({}, story))
        assert all(in_words(plain(one)) for one in may_see(own, 1000) + own)


@given(st.data())
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_stands_in_a_line_no_reader_fails(written, data):
    lines = [plain(line) for line in written]
    at = data.draw(st.integers(0, len(lines) - 1))
    lines[at] = damaged(data, lines[at])
    look([msgspec.json.encode(UseLine(job=7)), *(json.dumps(line).encode() for line in lines)])


def test_a_record_is_the_same_by_its_plain_values(written):
    assert [plain(of_plain(plain(line))) for line in written] == list(map(plain, written))
