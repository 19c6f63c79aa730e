"""Every word that some release has for a job's state or reason is read as what it is."""

from dataclasses import replace

import pytest

from slurm_plugin.base.job_states import queue_state
from slurm_plugin.queue.demand import READY, lacks_only_room
from slurm_plugin.tell.why.answer import not_on_the_nodes
from tests.slurm_plugin import slurms_words as slurms
from tests.slurm_plugin.tell.why.test_answer import JOB, state


@pytest.mark.parametrize("release", slurms.RELEASES)
def test_every_word_of_a_release_is_among_those_whose_meaning_is_written_down(release):
    assert slurms.words_of("state", release) == set(slurms.STATES)
    flags = slurms.words_of("flag", release)
    assert flags <= slurms.ALONE.keys() | slurms.BESIDE
    assert ("EXPEDITING" in flags) == (release >= "25.11")
    assert {*slurms.ROOM, "BeginTime", "ReqNodeNotAvail"} <= slurms.words_of("reason", release)


@pytest.mark.parametrize(("word", "meaning"), [*slurms.STATES.items(), *slurms.ALONE.items()])
def test_a_word_that_stands_alone_is_read_as_what_it_is(word, meaning):
    assert queue_state((word,)) == meaning


@pytest.mark.parametrize("flag", sorted(slurms.ALONE.keys() | slurms.BESIDE))
def test_a_flag_beside_its_base_state_is_read_as_what_it_is(flag):
    """Some say it all; beside the others a job is what its base state says."""
    says_it_all = ("COMPLETING", "CONFIGURING", "REVOKED", "STAGE_OUT")
    for base, meaning in slurms.STATES.items():
        read = queue_state((base, flag))
        assert read == (slurms.ALONE[flag] if flag in says_it_all else meaning), base


def test_what_lacks_only_room_is_no_other_reason_of_any_release():
    assert READY - {""} == slurms.ROOM
    reasons = slurms.words_of("reason")
    assert {one for one in reasons if lacks_only_room(replace(JOB, reason=one))} == slurms.ROOM


@pytest.mark.parametrize(
    "sentence",
    [
        "Job's account not permitted to use this partition (gpu allows a,b not c)",
        "Job's QOS not permitted to use this partition (gpu denies x including y)",
        "uid 1001 not in group permitted to use this partition (gpu). groups allowed: chem",
    ],
)
def test_a_job_that_its_partition_does_not_take_lacks_more_than_room(sentence):
    """squeue has the sentence in place of the code, AccountNotAllowed or QOSNotAllowed."""
    assert not lacks_only_room(replace(JOB, reason=sentence))


def test_a_reason_that_the_nodes_do_not_explain_has_a_sentence_of_its_own():
    reasons = slurms.words_of("reason")
    told = {one: not_on_the_nodes(state(replace(JOB, reason=one))) for one in reasons}
    untold = {one for one, why in told.items() if why and "what Slurm calls" in why.text}
    assert {one for one, why in told.items() if why is None} <= slurms.ROOM | slurms.NODES
    assert untold == slurms.UNTOLD
