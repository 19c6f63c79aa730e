"""GRES types of sites that give each GPU a type of its own."""

import pytest

from slurm_plugin.slurm.slot_types import index_of, request, slots_of


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
