"""Who is told what: the log's search, the listener with munge credentials, Slurm's own word."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from commands_in_tests import run
from engine_in_tests import an_engine, served, written
from fake_slurm import tool
from machines_in_tests import BASIC, mask, node, question
from msgspec.structs import replace

from slurm_plugin.base import munge
from slurm_plugin.base.log_lines import LineReader
from slurm_plugin.config import settings as configuration
from slurm_plugin.config.sections import DecisionLogConfig
from slurm_plugin.errors import EngineDown, SlurmError
from slurm_plugin.serve.setup import Setup
from slurm_plugin.slurm.job_entries.saved import NAME, JobEntries, entry_file
from slurm_plugin.tell.explain import listener, machines, remote, search, slurm_says
from slurm_plugin.tell.explain.answer import NotShown, unknown
from slurm_plugin.tell.explain.drawing import MOST_SMALL, drawn
from slurm_plugin.tell.explain.find import explained
from slurm_plugin.tell.explain.listener import (
    BURST,
    MAX_USERS,
    RATE,
    Allowances,
    ExplainListener,
)
from slurm_plugin.tell.explain.story import story_of

OWNER, STRANGER = 1000, 1001

# As munge: the credential names its maker, and opens once. FAKE_UID is who runs it.
FAKE_MUNGE = """
printf 'MUNGE:%s:\\n' "$(printf '%s\\n%s' "$FAKE_UID" "$(cat)" | base64 -w0)"
"""
FAKE_UNMUNGE = """
fail() { echo "unmunge: Error: $1" >&2; exit 15; }
text="$(sed 's/^MUNGE://; s/:$//' | base64 -d 2>/dev/null)" || fail Invalid
name="$(printf %s "$text" | cksum | tr ' ' -)"
mkdir "$FAKE_SEEN/$name" 2>/dev/null || fail 'Replayed credential'
printf 'STATUS:          0\\nUID:             %s\\n\\n' "$(printf %s "$text" | head -1)"
printf %s "$text" | tail -n +2
"""


@pytest.fixture
def fake_munge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """munge's tools without munged; whoever asks is FAKE_UID."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tmp_path / "seen").mkdir()
    tool(tools, "munge", FAKE_MUNGE)
    tool(tools, "unmunge", FAKE_UNMUNGE)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SEEN", str(tmp_path / "seen"))
    monkeypatch.setenv("FAKE_UID", str(OWNER))


@pytest.fixture
def site(tmp_path: Path) -> Setup:
    """A configuration, and a log in which the owner's job 7 was placed on dgx1."""
    engine = an_engine(tmp_path)
    asked = question(node("dgx1", 0xFF, mask(0, 1)), job=7, uid=OWNER)
    engine.log.append(replace(engine.setup.enforcement.on_place(asked).record(), time="T"))
    engine.log.close()
    return engine.setup


@pytest.fixture
def address(site: Setup, fake_munge: None) -> Iterator[tuple[str, int]]:
    """Where the listener is."""
    listener = ExplainListener(
        ("127.0.0.1", 0), lambda: (site.config.decision_log, site.machines, lambda job: None)
    )
    with served(listener):
        yield "127.0.0.1", listener._port.number


TRUSTED = frozenset({OWNER, STRANGER})


def test_the_owner_is_told_everything_and_what_to_draw(address):
    reply = remote.ask(address, 7, TRUSTED)
    assert reply["told"]["chosen"]["gpus"] == {"dgx1": [0, 3]}
    assert reply["told"]["slurm"]["gpus"] == {"dgx1": [0, 1]}
    assert reply["machines"]["dgx1"]["topology"]["gpus"] == 8


def test_a_strangers_job_and_no_job_at_all_get_the_same_words(address, monkeypatch):
    monkeypatch.setenv("FAKE_UID", str(STRANGER))
    for job in (7, 8):
        with pytest.raises(NotShown, match=f"^{unknown(job)}$"):
            remote.ask(address, job, TRUSTED)


def test_root_and_the_engines_own_user_see_every_job(address, monkeypatch):
    for uid in {0, os.getuid()}:
        monkeypatch.setenv("FAKE_UID", str(uid))
        assert remote.ask(address, 7, frozenset({uid}))["told"]["job"] == 7


def test_an_answer_of_somebody_else_is_not_believed(address):
    with pytest.raises(EngineDown, match="answered by uid 1000, which is not SlurmUser"):
        remote.ask(address, 7, frozenset({0}))


def test_a_credential_is_taken_once(address):
    credential = munge.seal(json.dumps({"job": 7, "nonce": "a"}).encode())
    assert remote._exchange(address, credential, "x").startswith(b"MUNGE:")
    assert b"error unmunge: Error: Replayed" in remote._exchange(address, credential, "x")


@pytest.mark.parametrize(
    "line",
    [b"", b"garbage", b"MUNGE:::", b"MUNGE:" + b"A" * 100_000 + b":", b"\xff\x00"],
    ids=["nothing", "a word", "empty", "too long", "bytes"],
)
def test_what_is_no_credential_tells_nothing(address, line):
    try:
        reply = remote._exchange(address, line, "x")
    except EngineDown:
        return
    assert reply.startswith(b"error ")


@pytest.mark.parametrize(
    "payload",
    [b"", b"[]", b"{}", b'{"job": -1, "nonce": ""}', b'{"job": true, "nonce": ""}', b"[" * 900,
     b'{"job": "7", "nonce": ""}', b"x" * 5000],
)  # fmt: skip
def test_a_question_that_names_no_job_is_refused_kindly(address, payload):
    reply = json.loads(
        munge.open_sealed(remote._exchange(address, munge.seal(payload), "x")).payload
    )
    assert "told" not in reply
    assert reply["message"]


def test_who_asks_too_often_is_slowed_down_and_nobody_else(address, monkeypatch):
    # However slow the machine is: nothing comes back while they ask.
    monkeypatch.setattr(listener, "RATE", 0.0)
    monkeypatch.setenv("FAKE_UID", str(STRANGER))
    questions = [json.dumps({"job": 7, "nonce": str(i)}).encode() for i in range(int(BURST) + 1)]
    replies = [remote._exchange(address, munge.seal(question), "x") for question in questions]
    assert [b"busy" in reply for reply in replies] == [False] * int(BURST) + [True]
    monkeypatch.setenv("FAKE_UID", str(OWNER))
    assert remote.ask(address, 7, TRUSTED)["told"]["job"] == 7


def test_who_proves_nothing_costs_nobody_a_question(address):
    for _ in range(30):
        assert b"error " in remote._exchange(address, b"MUNGE:QQ==:", "x")
    assert remote.ask(address, 7, TRUSTED)["told"]["job"] == 7


def test_one_question_of_a_user_is_answered_at_a_time_and_few_users_are_remembered():
    allowances = Allowances(lambda: 0.0)
    assert [allowances.begin(1), allowances.begin(1), allowances.begin(2)] == [True, False, True]
    allowances.end(1)
    assert allowances.begin(1)
    for uid in range(3, 3 + 2 * MAX_USERS):
        allowances.begin(uid)
        allowances.end(uid)
    assert len(allowances._left) == MAX_USERS


def test_the_allowance_fills_again():
    now = [0.0]
    allowances = Allowances(lambda: now[0])

    def asks() -> bool:
        is_allowed = allowances.begin(1)
        allowances.end(1)
        return is_allowed

    assert [asks() for _ in range(int(BURST) + 1)] == [True] * int(BURST) + [False]
    now[0] = 1 / RATE
    assert [asks() for _ in range(2)] == [True, False]


def test_records_are_found_in_every_rotated_file_and_half_lines_skipped(tmp_path):
    config, reader = DecisionLogConfig(tmp_path / "log", 1, 2), LineReader()
    (tmp_path / "log.1").write_bytes(
        b'{"decision":"use","job":12,"postponed":1}\n{"decision":"use","job":1,"postponed":2}\n'
        b'{"decision":"use","job":12,"post\n'
    )
    rest = b'{"job":3,"array":12,"decision":"use","postponed":3}\n{"job":120,"decision":"use"}\n'
    (tmp_path / "log").write_bytes(b'{"job":9,"x":"' + b"y" * 600_000 + b'"}\n' + rest)
    assert [r.postponed for r in search.LogIndex(config).find(12, reader)] == [1, 3]
    assert reader.unread == 1
    assert search.LogIndex(config).find(2) == []


ARRAY = [
    {"job": 6, "array": 6, "decision": "use", "uid": 1, "postponed": 1},
    {"job": 7, "array": 6, "decision": "started", "gpus": {}},
    {"job": 6, "array": 6, "decision": "wait", "uid": 1, "postponed": 2},
    {"job": 6, "array": 6, "decision": "use", "uid": 1, "postponed": 3},
    {"job": 6, "array": 6, "decision": "use", "uid": 1, "postponed": 4},
    {"job": 6, "array": 6, "decision": "started", "gpus": {}},
]


def test_an_arrays_decisions_are_given_to_the_tasks_that_started(tmp_path):
    """Slurm asks under the array's id; only the start names the task."""
    config = DecisionLogConfig(tmp_path / "log", 1, 1)
    config.path.write_text("".join(json.dumps(r, separators=(",", ":")) + "\n" for r in ARRAY))
    whole = [
        (r.job, r.decision, getattr(r, "postponed", None)) for r in search.LogIndex(config).find(6)
    ]
    assert whole == [
        (7, "use", 1), (7, "started", None), (6, "wait", 2), (6, "use", 3), (6, "use", 4),
        (6, "started", None),
    ]  # fmt: skip
    task = [(r.decision, getattr(r, "postponed", None)) for r in search.LogIndex(config).find(7)]
    assert task == [("use", 1), ("started", None)]


class Slurm:
    """scontrol and sacct of one job, as a Runner."""

    def __init__(self, uid: int = OWNER, held: bool = True, accounting: str = "") -> None:
        self.uid, self.held, self.accounting = uid, held, accounting

    def __call__(self, argv: list[str], stdin: str = "", timeout_s: float | None = None) -> str:
        if argv == ["scontrol", "show", "config"]:
            return "SlurmUser               = slurm(64030)\n"
        if argv[0] == "sacct":
            return self.accounting
        if not self.held:
            raise SlurmError("scontrol: exit 1: slurm_load_jobs error: Invalid job id specified")
        return (
            f"JobId=7 JobName=a b UserId=x({self.uid}) JobState=PENDING Reason=Resources"
            " WorkDir=/home AdminComment=[gpu-topo: pattern=ring | dgx1:0,3 by mapa: ring: 40"
            " GB/s]  Comment=gpu-topo: off  StdErr=/dev/null\n"
        )


@pytest.fixture
def as_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: OWNER)


def told(run: Slurm, text: str = "7", address: Any = None) -> dict[str, Any]:
    return explained(text, None, address, run).story


def test_without_an_engine_slurm_tells_what_stands_in_admin_comment(as_owner):
    found = told(Slurm())
    assert found["state"] == "PENDING (Resources)"
    assert found["hint"] == "pattern=ring"
    assert found["note"] == "dgx1:0,3 by mapa: ring: 40 GB/s"
    assert told(Slurm(), "7_3")["job"] == 7


def test_a_job_that_slurm_no_longer_holds_is_in_accounting(as_owner):
    line = f"7|{OWNER}|COMPLETED|[gpu-topo: off | Slurm's own choice: opted out by hint]\n"
    found = told(Slurm(held=False, accounting=line))
    assert (found["state"], found["hint"]) == ("COMPLETED", "off")


def test_a_strangers_job_is_not_told_by_slurm_either(as_owner):
    for slurm in (Slurm(uid=STRANGER), Slurm(held=False)):
        with pytest.raises(NotShown, match=f"^{unknown(7)}$"):
            told(slurm)


def test_an_engine_that_is_not_reached_is_said_and_slurm_asked(as_owner, fake_munge):
    found = told(Slurm(), address=("127.0.0.1", 1))
    assert "the engine is not reached: 127.0.0.1:1" in found["remark"]
    assert found["note"].startswith("dgx1:0,3")


@pytest.mark.parametrize(
    ("sentence", "slurm", "job", "source"),
    [
        ("AdminComment says it itself", Slurm(), 7, "Slurm"),
        ("jobstats wrote its own", Slurm(held=False, accounting=f"8|{OWNER}|COMPLETED|JS1:x\n"), 8,
         "the engine's notes"),
        ("Slurm has forgotten it", Slurm(held=False), 8, "the engine's notes"),
    ],
)  # fmt: skip
def test_what_admin_comment_does_not_say_is_in_the_engines_notes(
    tmp_path, monkeypatch, sentence, slurm, job, source
):
    """For root, who reads the file."""
    monkeypatch.setattr(os, "getuid", lambda: 0)
    path = written(tmp_path, BASIC)
    config = configuration.load(path)
    config.decision_log.path.parent.mkdir(parents=True, exist_ok=True)
    config.decision_log.path.write_text("")
    kept = [JobEntries(n, uid=OWNER, state="ENDED", ours={"gpu-topo": "| why"}) for n in (7, 8)]
    assert entry_file(config.state_dir / NAME).write(kept)
    found = explained(str(job), config, None, slurm)
    assert found.story["source"] == source
    assert found.story["note"] == ("why" if job == 8 else "dgx1:0,3 by mapa: ring: 40 GB/s")
    with pytest.raises(NotShown, match="older ones are rotated away"):
        explained("9", config, None, Slurm(held=False))


def test_operators_are_root_and_slurmuser():
    assert slurm_says.operators(Slurm()) == frozenset({0, 64030})


def test_the_log_is_closed_to_others(site):
    assert not stat.S_IMODE(site.config.decision_log.path.stat().st_mode) & stat.S_IRWXO


def of_class(svg, name):
    return svg.count(f'class="gt-{name}"')


def test_a_job_is_drawn_with_its_ring_slurms_choice_and_the_next_candidates(site):
    story = story_of(7, search.LogIndex(site.config.decision_log).find(7), "test")
    picture = drawn(story, machines.shown(site.machines, story))
    svg = picture.svg()
    ElementTree.fromstring(svg)
    # The node in full with Slurm's 0,1 outlined (and one in its key), where the job has 0,3.
    assert of_class(svg, "beside") == 3
    # Two GPUs in full, their key, and two in each small picture.
    others = [one for one in story["candidates"] if one["gpus"] != {"dgx1": [0, 3]}]
    small = min(len(others) + 2, MOST_SMALL)
    assert of_class(svg, "chosen") == 2 + 1 + 2 * small
    for words in (
        "chosen",
        "Slurm&#x27;s own",
        "dgx1: 0,1",
        "39.1 GB/s for its pattern",
        "policy mapa",
    ):
        assert words in svg


def test_the_command_draws_one_file_and_refuses_what_it_cannot_draw(site, tmp_path):
    """Slurm is not there: what runs and what is lent is left out."""
    args = ("explain", "7", "--config", str(tmp_path / "gputopo.yaml"), "--plot")
    assert "policy mapa" in run(*args, str(tmp_path / "job.svg"))
    ElementTree.parse(tmp_path / "job.svg")
    said = run(*args, str(tmp_path / "job.gif"), code=2)
    assert said.endswith("job.gif: expected a file to write, .svg or .png\n")


def test_gpus_in_the_picture_are_called_as_slurm_calls_them(site):
    """`mirrored` counts backwards: the topology's GPU 7 is Slurm's GPU 0."""
    story = {"job": 7, "decision": "use", "chosen": {"gpus": {"mirrored": [0, 3], "alien": [1]}}}
    picture = drawn(story, machines.shown(site.machines, story))
    assert "ranks on 0, 3." in picture.desc
    assert "alien" not in picture.desc.split("mirrored: 0,3; alien: 1")[0]


def test_a_waiting_job_is_drawn_where_it_would_be_now_and_a_loan_on_both_nodes(site):
    would = {"job": 7, "decision": "wait", "chosen": {"gpus": {"dgx1": [0, 3]}},
             "slurm": {"gpus": {"dgx1": [1, 2]}}}  # fmt: skip
    svg = drawn(would, machines.shown(site.machines, would)).svg()
    assert "dgx1: 0,3  would be there now" in svg
    donor = {"node": "mirrored", "gpus": [1], "job": 31}
    lent = {"job": 7, "decision": "lent", "host": "dgx1", "gpus": [6, 7], "donors": [donor]}
    svg = drawn(lent, machines.shown(site.machines, lent)).svg()
    assert "dgx1: 6,7  its own GPUs" in svg
    assert "mirrored: 1  lent by job 31" in svg


def test_a_story_with_hostile_words_is_drawn_as_text(site):
    evil = "</text><script>\x1b"
    story = {"job": 7, "decision": "use", "hint": evil, "reason": evil, "pattern": "mine@0",
             "chosen": {"gpus": {"dgx1": [0, 1, 99]}}}  # fmt: skip
    svg = drawn(story, machines.shown(site.machines, story)).svg()
    ElementTree.fromstring(svg)
    assert "<script" not in svg
