"""What stands in AdminComment: GPUs in rank order, policy, reason, within 200 bytes."""

from machines_in_tests import basic_decider, mask, node, question

from slurm_plugin.decide.decide import use_note
from slurm_plugin.protocol import Pass, Use
from slurm_plugin.wire import clean_note

FULL = 0xFF


def test_a_placement_names_gpus_policy_and_reason(tmp_path):
    reply = basic_decider(tmp_path).decide(question(node("dgx1", FULL, mask(0, 1)))).reply
    assert isinstance(reply, Use)
    assert reply.note.startswith("dgx1:0,3 by mapa: ring: ")
    assert reply.note == clean_note(reply.note)


def test_gpus_stand_in_rank_order_by_slurms_index(tmp_path):
    asked = question(node("mirrored", FULL, mask(0, 1, 2, 3)))
    decision = basic_decider(tmp_path).decide(asked)
    order = decision.record()["chosen"]["gpus"]["mirrored"]
    assert decision.reply.note.startswith(f"mirrored:{','.join(map(str, order))} by mapa: ")
    assert mask(*order) == decision.reply.nodes["mirrored"]


def test_many_nodes_are_counted_and_the_reason_stays():
    gpus = {f"node{i:03}": tuple(range(8)) for i in range(100)}
    note = use_note(gpus, "mapa", "because of its links")
    assert len(note.encode()) <= 200
    assert "more nodes by mapa: because of its links" in note
    assert note.startswith("node000:0,1,2,3,4,5,6,7 node001:")


def test_nothing_is_written_where_the_site_wants_nothing(tmp_path):
    decide = basic_decider(tmp_path).decide
    for partition in ("quiet", "watched"):
        asked = question(node("dgx1", FULL, 1), node("alien", FULL), partition=partition)
        assert decide(asked).reply == Pass()
    assert decide(question(node("alien", FULL, 1), partition="watched")).reply == Pass()


def test_the_record_counts_the_rings_pcie_hops(tmp_path):
    record = basic_decider(tmp_path).decide(question(node("dgx1", FULL, mask(0, 5)))).record()
    assert record["chosen"]["pcie_hops"] == 0
    assert record["slurm"]["pcie_hops"] == 1
