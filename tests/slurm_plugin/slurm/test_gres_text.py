"""Slurm's GRES text in every form the releases print, and GRES types of one GPU each."""

import pytest

from slurm_plugin.slurm import gres_text
from slurm_plugin.slurm.slot_types import index_of, request, slots_of


@pytest.mark.parametrize(
    ("text", "counts", "indices"),
    [
        ("gpu:v100:8(S:0-1)", {"v100": 8}, ()),
        ("gpu:v100:2(IDX:0,3)", {"v100": 2}, (0, 3)),
        ("gpu:(null):4(IDX:0-3)", {"": 4}, (0, 1, 2, 3)),
        ("gpu:4", {"": 4}, ()),
        ("gpu:2(IDX:5,7)", {"": 2}, (5, 7)),
        ("gpu:s1:1(IDX:1),gpu:s6:1(IDX:6)", {"s1": 1, "s6": 1}, (1, 6)),
        ("gpu:v100:0(IDX:N/A)", {"v100": 0}, ()),
        ("gpu:a100:2(IDX:0-1),gpu:t4:1(IDX:5),shard:4", {"a100": 2, "t4": 1}, (0, 1, 5)),
        ("gres:gpu:2,gres/gpu:tesla:1", {"": 2, "tesla": 1}, ()),
        ("gpu:1g.5gb:7", {"1g.5gb": 7}, ()),
        ("gpu", {"": 1}, ()),
        ("gres/gpu=2,cpu=4,gres/gpu:v100=1", {"": 2, "v100": 1}, ()),
        ("lic:2(IDX:1)", {}, ()),
        ("", {}, ()),
        ("(null)", {}, ()),
    ],
)
def test_counts_by_type_and_indices(text, counts, indices):
    assert gres_text.counts(text) == counts
    assert gres_text.indices(text) == indices


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("shard:a100:3(0/4,3/4,0/4,0/4)", (1,)),
        ("shard:2(2/4)", (0,)),
        ("mps:150(100/100,50/100)", (0, 1)),
        ("gres:shard:1(0/4,1/4),lic:2", (1,)),
        ("gpu:a100:2(IDX:0-1)", ()),
        ("shard:2", ()),
        ("", ()),
    ],
)
def test_gpus_that_a_job_has_shares_of(text, gpus):
    assert gres_text.shared(text) == gpus


@pytest.mark.parametrize("text", ["gpu:v100:x", "gpu:a:b:c", "!!"])
def test_what_is_no_gres_is_refused(text):
    with pytest.raises(ValueError, match="expected NAME"):
        gres_text.counts(text)


@pytest.mark.parametrize(
    ("gpu_type", "index"),
    [("v100.s3", 3), ("s0", 0), ("v100", None), ("", None), ("a100-sxm4.s12", 12), ("xs1", None)],
)
def test_a_slot_type_ends_in_its_index(gpu_type, index):
    assert index_of(gpu_type) == index


def test_slots_stand_in_the_order_of_their_index_and_two_digits_do_not_come_before_one():
    gpus = {f"s{i}": 1 for i in (10, 2, 0, 1, 3, 4, 5, 6, 7, 8, 9)}
    assert slots_of(gpus) == tuple(f"s{i}" for i in range(11))


@pytest.mark.parametrize("gpus", [{"v100": 8}, {"s0": 2}, {"s0": 1, "s2": 1}, {"s0": 1, "a.s0": 1}])
def test_a_node_without_one_type_per_gpu_has_no_slots(gpus):
    assert slots_of(gpus) == ()


def test_a_mask_becomes_the_request_for_its_slots():
    slots = tuple(f"v100.s{i}" for i in range(8))
    assert request(slots, 0b1001, 2) == "gpu:v100.s0:2,gpu:v100.s3:2"
