"""Records in a job's AdminComment: written, read again, replaced."""

import pytest

from slurm_plugin.base.job_notes.records import GateRecord, without_gate


@pytest.mark.parametrize("value", ["a b]c|d", "gres/gpu:2,cpu=4", "100%", "é", "(v100|a100)&ib"])
def test_a_bracket_comes_back_as_it_was_written(value):
    written = GateRecord("gated", {"token": "t1", "tpn": value})
    text = written.text()
    assert GateRecord.read_from(f"site's word [gpu-topo: ring] {text}") == written
    assert not set("]|") & set(text[1:-1])


def test_a_new_bracket_replaces_the_old_one_and_leaves_the_rest():
    old = "site [gpu-topo: ring | note] [gpu-slots: gated token=a]"
    new = GateRecord("placed", {"token": "b"}).written_into(old)
    assert new == "site [gpu-topo: ring | note] [gpu-slots: placed token=b]"
    assert without_gate(new) == "site [gpu-topo: ring | note]"


def test_a_request_too_long_for_a_comment_is_refused():
    with pytest.raises(ValueError, match="over 1536"):
        GateRecord("gated", {"req": "n" * 1600}).text()


@pytest.mark.parametrize("text", ["", "[gpu-topo: x]", "[gpu-slots: what a=b]", "[gpu-slots: ]"])
def test_a_comment_without_a_state_of_ours_has_no_bracket(text):
    assert GateRecord.read_from(text) is None
