"""notes: engine: replies that put nothing into AdminComment, and what users are told then."""

import pytest
from engine_in_tests import an_engine
from machines_in_tests import BASIC, mask, node, place

from bench.request_lines import encode_request
from slurm_plugin.base.protocol import Submit, split, unquote
from slurm_plugin.serve.run import _known_to
from slurm_plugin.serve.service import Engine
from slurm_plugin.slurm.interface import QueuedJob
from slurm_plugin.tell.explain.answer import NotShown, tell
from slurm_plugin.tell.explain.search import LogIndex
from slurm_plugin.tell.explain.text import in_words

QUIET = BASIC + "notes: engine\n"
GATE = "[gpu-slots: gated token=a tpn=gres/gpu:2 nodes=1-1 by=node]"
LATER = {"hint": "min-utility=1", "postponed": 2, "waited_s": 30}


def reply(engine: Engine, message: object) -> tuple[str, dict[str, str]]:
    answer = engine.answer(encode_request(message))
    verb, pairs = split(answer.reply or b"")
    return verb, {key: unquote(value) for key, value in pairs}


def test_a_hint_is_checked_at_submit_and_not_written_down(tmp_path):
    """The select plugin reads it from the comment or the option itself."""
    submit = Submit(id=4, uid=1000, gpus=2, nodes=1, per_node=2, tasks=1, hint="pattern=ring")
    for text, expected in ((BASIC, "ok"), (QUIET, "pass")):
        verb, keys = reply(an_engine(tmp_path, text), submit)
        assert verb == expected
        assert ("set.admin_comment" in keys) is (text == BASIC)
        assert keys["keep_s"]


@pytest.mark.parametrize("hint", ["", "off", "min-utility=1"])
def test_a_reply_to_a_placement_tells_the_select_plugin_to_write_nothing(tmp_path, hint):
    asked = place(node("dgx1", mask(1, 2, 6), mask(1, 2)), id=9, hint=hint)
    assert reply(an_engine(tmp_path, QUIET), asked)[1]["quiet"] == "1"
    assert "quiet" not in reply(an_engine(tmp_path), asked)[1]


@pytest.mark.parametrize("text", [QUIET, BASIC], ids=["quiet", "replaced by others"])
def test_a_wait_is_noted_as_the_select_plugin_would(tmp_path, text):
    engine = an_engine(tmp_path, text)
    verb, keys = reply(engine, place(node("dgx1", mask(1, 6), mask(1, 6)), id=9, **LATER))
    assert verb == "wait", keys
    store = engine.setup.keeper.store
    [job], _ = store.take([QueuedJob(7, name="7", state="PENDING", uid=1000)], store.clock())
    assert job.admin_comment.startswith("[gpu-topo: min-utility=1 | waiting 3/3 since ")
    assert "(until " in job.admin_comment
    assert store.start_notes.wait_of(7, store.wall_clock())
    verb, _ = reply(engine, place(node("dgx1", mask(0, 3), mask(0, 3)), id=10))
    assert verb in ("use", "keep"), verb
    assert not store.start_notes.wait_of(7, store.wall_clock())


def test_a_wait_that_the_select_plugin_noted_is_left_as_it_is(tmp_path):
    engine = an_engine(tmp_path)
    reply(engine, place(node("dgx1", mask(1, 6), mask(1, 6)), id=9, **LATER))
    store, own = engine.setup.keeper.store, "[gpu-topo: min-utility=1 | as written]"
    waits = QueuedJob(7, name="7", state="PENDING", uid=1000, admin_comment=own)
    [job], repairs = store.take([waits], store.clock())
    assert (job.admin_comment, repairs) == (own, [])


def test_users_are_told_of_their_own_jobs_what_no_admin_comment_says(tmp_path):
    engine = an_engine(tmp_path, QUIET)
    store = engine.setup.keeper.store
    job = QueuedJob(14, name="14", state="PENDING", uid=1000, admin_comment=GATE)
    log, *more = _known_to(engine.setup)
    known = LogIndex(log), *more
    store.submitted(f"[gpu-topo: | waits for 2 free GPUs on one node] {GATE}")
    store.take([job], store.clock())
    for _ in range(2):
        told = tell(14, 1000, *known)["told"]
        assert told["note"] == "waits for 2 free GPUs on one node"
        assert "told by the engine's notes" in in_words(told)
        # The same once it has ended.
        store.take([], store.clock())
    for uid, number in ((1001, 14), (1000, 15)):
        with pytest.raises(NotShown, match="no decision for a job of yours"):
            tell(number, uid, *known)
