"""The note beside a job's hint."""

import pytest

from slurm_plugin.base.job_notes import hints


@pytest.mark.parametrize(
    ("sentence", "said", "note", "is_same"),
    [
        ("the same", "2 GPUs are free", "2 GPUs are free", True),
        ("another number", "2 GPUs are free", "13 GPUs are free", True),
        ("other decimals and thousands", "ends in 1,347 s", "ends in 99.5 s", True),
        ("another word", "2 GPUs are free", "2 GPUs are lent", False),
        ("none so far", "", "2 GPUs are free", False),
        ("characters that no note may have", "(a) or b/c", "[a] or\nb|c", True),
        ("more than a note may have", "x" * 200, "x" * 300, True),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 50 else "",
)
def test_a_note_is_written_again_only_where_its_words_are_others(sentence, said, note, is_same):
    comment = hints.with_note("[gpu-topo: pattern=ring]", said)
    assert hints.has_note(comment, note) is is_same
    assert hints.has_note(hints.with_note(comment, note), note)


@pytest.mark.parametrize(
    ("hint", "values"),
    [
        ("profile=bert,batch=4", {"profile": "bert", "batch": "4"}),
        ("profile=bert,communication=0.2", {"profile": "bert", "communication": "0.2"}),
        ("policy=topo-aware-p,profile=bert", {"policy": "topo-aware-p", "profile": "bert"}),
        ("colour=red", {}),
        ("", {}),
    ],
)
def test_what_a_hint_says_of_the_job_does_not_depend_on_who_decides(hint, values):
    assert hints.values_of(hint) == values
