"""Every text a user can write: read within bounds of time and memory, and nobody else notices.

The bounds are generous: what they catch took seconds and gigabytes, or ended the whole look.
"""

import json
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from engine_in_tests import an_engine
from genie_in_tests import NOW as SHAPED_AT
from genie_in_tests import a_node, a_shaping, queued
from genie_in_tests import submit as shaped
from hypothesis import given
from hypothesis import strategies as st
from machines_in_tests import BASIC, a_submit, basic_decider

from bench.request_lines import encode_request
from gres_topology import features, hostlist
from policies.contract.bits import lowest_bits
from policies.hints import to_running
from slurm_plugin.act.enforcement.slots import Slots
from slurm_plugin.act.gates import planning, released
from slurm_plugin.act.gates.capacity_cache import CapacityCache
from slurm_plugin.act.gates.plan import ChosenSlots, GateContext
from slurm_plugin.act.gates.want import Wants
from slurm_plugin.act.genie.changes import asked_shape
from slurm_plugin.act.genie.domain_snapshot import domain_snapshot
from slurm_plugin.act.lending.at_start import planning as at_start
from slurm_plugin.act.lending.at_start.start_loans import StartLoans
from slurm_plugin.act.lending.plan import LoanContext
from slurm_plugin.base.job_notes.hints import hint_of, values_of
from slurm_plugin.base.protocol import Submit
from slurm_plugin.queue.backfill import WaitingLine
from slurm_plugin.queue.capacity import Node, emptied
from slurm_plugin.queue.coming import Coming
from slurm_plugin.queue.demand import MAX_NAMED
from slurm_plugin.queue.snapshot import Settings
from slurm_plugin.serve.service import Engine
from slurm_plugin.slurm import array_tasks
from slurm_plugin.slurm.clients import rows
from slurm_plugin.slurm.interface import QueuedJob, SlurmPartition
from slurm_plugin.tell.explain.answer import NotShown, _question

BATCH = Settings((SlurmPartition("batch", (), True),))
#: Seconds and bytes that one hostile text may take.
SECONDS, MEMORY = 1.0, 24 << 20
V100 = tuple(f"v100.s{i}" for i in range(8))
NOW = 1000

HOST_LISTS = {
    "ranges of ranges": "n[" + ",".join(["1-65536"] * 500) + "]",
    "the same names again and again": ",".join(["n[1-4000]"] * 400),
    "a product of many brackets": "n" + "[1-9]" * 800,
    "long names": "n" * 3900 + "[1-65536]",
    "long names of many brackets": "[000000001]" * 300 + "[1-65536]",
    "brackets in brackets": "n" + "[" * 4000,
    "commas": "," * 4095,
    "digits": "n[1-" + "9" * 4000 + "]",
    "as many as there may be": f"n[1-{hostlist.MAX_HOSTS}]",
}
CONSTRAINTS = {
    "alternatives": "|".join(["a"] * 2048),
    "open parentheses": "(" * 4095,
    "nested parentheses": "(" * 2000 + "a" + ")" * 2000,
    "operators": "&" * 4095,
    "brackets": "[" * 4095,
    "blanks": " " * 4095,
    "one long name": "a" * 4095,
}
GRES = {
    "many items": ",".join(["gpu:1"] * 680),
    "a long count": "gpu:" + "9" * 4000,
    "open parentheses": "gpu:1" + "(" * 4000,
    "parentheses": "gpu:1" + "()" * 2000,
    "colons": ":" * 4000,
    "types": "gpu:" + "a" * 4000,
    "commas": "," * 4000,
    "no GRES at all": "gpu:1(",
}
HINTS = {
    "commas": "," * 1024,
    "equals": "=" * 1024,
    "one key again and again": ",".join(["pack"] * 200),
    "digits": "batch=" + "9" * 1000,
    "blanks": " " * 1024,
    "too long": "pattern=ring," * 300,
}
COMMENTS = {
    "open brackets": "[gpu-topo: " * 360,
    "blanks": "gpu-topo:" + " " * 4000,
    "forged": "[gpu-slots: placed token=x tpn=gres/gpu:x at=x begin=x]",
}


def room(count: int) -> dict[str, Node]:
    """As many empty nodes of one partition."""
    node = Node("", V100, 0xFF, 400, 1 << 40, partitions=frozenset({"batch"}))
    return {f"dgx{i}": replace(node, name=f"dgx{i}") for i in range(1, count + 1)}


@contextmanager
def bounded() -> Iterator[None]:
    """Fails where what is done takes more of a core, or of memory at a time, than a text may."""
    tracemalloc.start()
    began = time.process_time()
    try:
        yield
        took, most = time.process_time() - began, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert took < SECONDS, f"{took:.1f} s"
    assert most < MEMORY, f"{most >> 20} MiB"


def attempted(call: Callable[[], object]) -> None:
    """A text may be refused, in a word or two."""
    told = ""
    try:
        call()
    except ValueError as error:
        told = str(error)
    assert len(told) < 300


@pytest.mark.parametrize("text", HOST_LISTS.values(), ids=HOST_LISTS)
def test_a_host_list_is_counted_before_a_name_is_made(text):
    with bounded():
        attempted(lambda: hostlist.expand(text))


@pytest.mark.parametrize("text", CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_a_constraint_costs_little_on_however_many_nodes(text):
    with bounded():
        for i in range(1000):
            try:
                features.holds(text, {f"f{i % 10}", "b"})
            except features.Unsupported:
                continue


def test_the_longest_constraint_that_is_judged_is_judged_once_for_nodes_that_are_alike():
    text = "|".join(["a"] * (features.MAX_CHARS // 2))
    with bounded():
        assert not any(features.holds(text, {"b", f"f{i % 10}"}) for i in range(20_000))


@given(st.text("ab&|()[] *,", max_size=30), st.frozensets(st.sampled_from("ab")))
def test_any_constraint_is_judged_or_refused(text, has):
    try:
        features.holds(text, has)
    except features.Unsupported:
        assert set(text) & set("[]*,&|()") or " " in text


@given(st.text("n0159[]-,. ", max_size=40))
def test_any_host_list_is_read_or_refused(text):
    attempted(lambda: hostlist.expand(text))


@pytest.mark.parametrize(
    "text", ["0-99999999", ",".join(["0-4000000"] * 400), "1," * 2000, "0-9:0", "x", "1-3,..."]
)
def test_no_task_of_an_array_is_made_by_reading_which_there_are(text):
    with bounded():
        attempted(lambda: array_tasks.fields(7, 7, 0, text))


def test_a_job_whose_tasks_cannot_be_read_is_left_out_of_the_queue_alone(caplog):
    """slurmrestd cuts long lists of tasks, so that anybody could make the queue unreadable."""
    job = {"job_id": 7, "job_state": ["PENDING"], "array_job_id": 7, "array_task_string": "1,3,..."}
    text = json.dumps({"jobs": [job, {"job_id": 8, "job_state": ["PENDING"]}]})
    for _ in range(3):
        assert [one.job_id for one in rows.queue(text, "slurmrestd: jobs")] == [8]
    assert [record.message for record in caplog.records] == [
        "slurmrestd: jobs: job 7 is left out: '1,3,...' are no array tasks; expected forms like"
        " 1-3,7"
    ]


@pytest.mark.parametrize(
    "payload",
    [b"[" * 1024, b'{"job":' * 140, b"9" * 1024, b'{"job":1e999,"nonce":""}', b"x" * 5000],
)
def test_any_question_to_explain_is_read_or_refused(payload):
    with bounded(), pytest.raises(NotShown):
        _question(payload)


# -- a submit -------------------------------------------------------------------


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """An engine of the slots mode whose cache has just seen an empty cluster."""
    found = an_engine(tmp_path, f"{BASIC}enforcement: slots\n")
    found.setup.cache.settings = BATCH
    found.setup.cache.update(room(64), (), WaitingLine(), time.time())
    yield found
    found.log.close()


def submit(**more: object) -> Submit:
    counts = {"gpus": 2, "nodes": 1, "per_node": 2, "tasks": 1}
    return a_submit(**{**counts, "tpn": "gres/gpu:2", "time_s": 60, **more})


TEXTS = [
    *((key, text) for key in ("req_nodes", "exc_nodes") for text in HOST_LISTS.values()),
    *(("features", text) for text in CONSTRAINTS.values()),
    *((key, text) for key in ("tpn", "tpj", "tpt", "tps") for text in GRES.values()),
    *(("hint", text) for text in (*HINTS.values(), *COMMENTS.values())),
    *((key, "x" * 1024) for key in ("account", "partition", "type", "user")),
    *((key, "]" * 4000) for key in ("reservation", "tpn", "features")),
    # Bytes that are no UTF-8, as they come off the wire, and what is none in any encoding.
    *((key, "a\udcff\x00\n\u2028") for key in ("features", "req_nodes", "tpn", "hint", "account")),
    *((key, "a\udcff\x00\n\u2028") for key in ("partition", "type", "user", "reservation")),
]


@pytest.mark.parametrize(("key", "text"), TEXTS)
def test_a_hostile_submit_gets_its_answer_and_the_next_one_its_gpus(engine, caplog, key, text):
    for form in ("node", "socket"):
        with bounded():
            reply = engine.answer(encode_request(submit(**{key: text, "form": form}))).reply
        assert reply is not None
        assert b"Traceback" not in reply
    ordinary = engine.answer(encode_request(submit())).reply
    assert ordinary.startswith(b"ok ")
    assert b"gpu-slots:%20placed" in ordinary
    assert not caplog.records, caplog.text


def test_numbers_of_any_size_are_answered(engine, caplog):
    chance = random.Random(7)
    sizes = (0, 1, 2, 3, 8, 64, 65, 2**31, 2**32, 2**53, 10**18 - 1)
    names = ("gpus", "nodes", "per_node", "tasks", "max_nodes", "shape", "tasks_per_node")
    keys = ("begin", "time_s", "cpus", "cpus_per_task", "cpus_per_gpu", "mem_node_mb", "mem_gpu_mb")
    for _ in range(400):
        told = {name: chance.choice(sizes) for name in (*names, *keys) if chance.random() < 0.6}
        form = chance.choice(("node", "job", "task", "socket"))
        with bounded():
            assert engine.answer(encode_request(submit(**told, form=form))).reply is not None
    assert not caplog.records, caplog.text


def test_a_line_of_very_many_keys_is_refused_in_time(engine):
    line = b"submit id=1 " + b" ".join(b"k%d=" % i for i in range(100_000))
    for hostile in (line, b"place id=1 " + b"node=a/1/1/1/1 " * 60_000, b"x" * (1 << 20)):
        began = time.process_time()
        assert engine.answer(hostile).reply is not None
        assert time.process_time() - began < SECONDS


# -- a look at the queue --------------------------------------------------------


def hostile_jobs(chance: random.Random, count: int) -> list[QueuedJob]:
    """Jobs with one or two hostile texts each, such as Slurm itself lets a user write."""
    words = {
        "features": list(CONSTRAINTS.values()),
        "req_nodes": list(HOST_LISTS.values()),
        "exc_nodes": list(HOST_LISTS.values()),
        "tres_per_node": list(GRES.values()),
        "tres_per_job": list(GRES.values()),
        "cpus_per_tres": list(GRES.values()),
        "memory_per_tres": list(GRES.values()),
        "reservation": ["x" * 4000],
        "account": ["x" * 4000],
        "partition": ["x" * 4000, "," * 4000],
        "comment": list(COMMENTS.values()),
        "reason": ["", "Dependency", "JobHeldUser"],
        "task": ["1-3,20000", "0-4000000", "10000"],
    }
    jobs = []
    for i in range(count):
        fields: dict[str, object] = {"tres_per_node": "gres/gpu:2", "array_id": 0, "tasks": 1}
        for name in chance.sample(sorted(words), 2):
            fields[name] = chance.choice(words[name])
        if "task" in fields:
            fields |= {"array_id": 100 + i, "tasks": 4}
        state = chance.choice(("gated", "placed"))
        kept = f"{state} token=h{i} tpn=gres/gpu:2 nodes=1-1 by=node at=990"
        fields = {
            "partition": "batch", "state": "PENDING", "reason": "BeginTime", "cpus": 1,
            "admin_comment": f"[gpu-slots: {kept}]", "time_limit_s": 60, "eligible": NOW + 1,
            "priority": 1000 + i, "name": str(100 + i), "uid": 1002, "user": "mallory", **fields,
        }  # fmt: skip
        jobs.append(QueuedJob(100 + i, **fields))
    return jobs


ALICE = QueuedJob(
    7,
    "7",
    partition="batch",
    state="PENDING",
    reason="BeginTime",
    cpus=1,
    priority=9999,
    eligible=NOW + 1,
    uid=1000,
    user="alice",
    tres_per_node="gres/gpu:2",
    admin_comment="[gpu-slots: gated token=a tpn=gres/gpu:2 nodes=1-1 by=node]",
)
ROOM = room(16)


@pytest.mark.parametrize("seed", range(6))
def test_a_look_of_the_slots_mode_outlives_hostile_jobs(seed):
    queue = [*hostile_jobs(random.Random(seed), 30), ALICE]
    with bounded():
        for job in queue:
            released.about_to_run(job)
            to_running(values_of(hint_of(job.admin_comment, job.comment)), job.job_id, {})
        # Nor does one that looks ahead.
        Coming(queue, NOW)
        made = planning.plan(
            queue,
            Wants().read(queue, emptied(ROOM)),
            ROOM,
            GateContext(NOW, lease_s=120),
            lambda _name, _job, want, found: ChosenSlots(
                found[0], lowest_bits(found[0].free, want.need.gpus)
            ),
        )
    assert "7" in [name for release in made.releases for name in release.jobs]


@pytest.mark.parametrize("seed", range(6))
def test_a_look_for_loans_outlives_hostile_jobs(seed):
    queue = [*hostile_jobs(random.Random(seed), 30), ALICE]
    context = LoanContext(NOW)
    with bounded():
        at_start.plan(queue, ROOM, context, StartLoans(60, highest=9, now=NOW), None)


SHAPED = {
    "numbers": "batch=1000000000,iterations=1000000000000",
    "no time left": "batch=1,iterations=1,deadline=1970-01-01T00:00Z",
    "all the time": "batch=64,iterations=1000000000000,deadline=999d9999h99999m",
    "an urgent one": "batch=1,iterations=1,class=urgent",
    "another profile": "profile=x" + "y" * 62,
}


@pytest.mark.parametrize("text", [*SHAPED.values(), *HINTS.values()])
def test_a_shaped_submit_of_any_numbers_gets_its_answer(tmp_path, text):
    shaping = a_shaping(tmp_path)
    looked = shaping.site.domains["dl"]
    shaping.snapshots["dl"] = domain_snapshot(
        looked, [], [a_node("dgx1"), a_node("dgx2")], SHAPED_AT, lambda *_: None
    )
    base = "policy=genie," if "profile" in text else "policy=genie,profile=resnet50,"
    chance = random.Random(3)
    for _ in range(20):
        names = ("nodes", "max_nodes", "tasks", "tasks_per_node", "gpus", "per_node", "shape")
        numbers = {name: chance.choice((0, 1, 3, 10**9, 10**18 - 1)) for name in names}
        with bounded():
            told = shaping.on_submit(shaped(base + text, cpus_per_task=10**9, **numbers))
            assert len(told.encode(1)) < 8192


@pytest.mark.parametrize("text", GRES.values(), ids=GRES)
def test_a_look_at_shapes_outlives_a_request_that_cannot_be_read(text):
    job = queued(7, tres_per_node=text)
    with bounded():
        shape = asked_shape(job)
    assert shape is None or shape.nodes == 1


def test_a_job_may_name_as_many_nodes_as_a_cluster_has_and_no_more(tmp_path):
    cache = CapacityCache(settings=BATCH)
    cache.update(ROOM, (), WaitingLine(), NOW)
    slots = Slots(basic_decider(tmp_path), cache, 120, clock=lambda: NOW)
    few, many = f"x[1-{MAX_NAMED}]", f"x[0-{MAX_NAMED}]"
    assert "gpu-slots: placed" in str(slots.on_submit(submit(exc_nodes=few)))
    assert f"more than {MAX_NAMED} hosts" in str(slots.on_submit(submit(exc_nodes=many)))
