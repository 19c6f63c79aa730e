"""Marked parts in decisions: broken GPUs are left alone while others fit, and it is all told."""

import asyncio

import pytest
from engine_in_tests import an_engine
from machines_in_tests import BASIC, basic_config, basic_decider, mask, node, question
from msgspec.structs import replace

from bench.request_lines import encode_request
from slurm_plugin.base.node_lines import NodesPart, TableChanges, digest
from slurm_plugin.base.protocol import split
from slurm_plugin.decide.load_machines import load_machines
from slurm_plugin.learn.part_marks.marks import Mark, change, path_in
from slurm_plugin.serve import setup
from slurm_plugin.tell.explain.story import story_of
from slurm_plugin.tell.explain.text import in_words

ALL = 0xFF


@pytest.fixture
def site(tmp_path):
    """Marks beside the configuration of these tests; the decider that reads them."""

    def marked(*marks, text=BASIC):
        change(path_in(tmp_path / "state"), lambda mark: False, marks)
        return basic_decider(tmp_path, text)

    return marked


def broken(gpu, name="dgx1"):
    return Mark(name, f"gpu {gpu}", "broken", why="fell off the bus", by="root")


def test_a_broken_gpu_is_not_taken_while_others_fit(site):
    decider = site(broken(3))
    for policy in ("mapa", "first-fit", "topo-aware", "best-fit"):
        for count in (1, 2, 7):
            own = (1 << count) - 1
            asked = question(node("dgx1", ALL, own), hint=f"policy={policy}")
            (chosen,) = decider.decide(asked).reply.nodes.values()
            assert chosen.bit_count() == count
            assert not chosen & mask(3)


def test_another_node_is_taken_rather_than_the_broken_gpu(site):
    decider = site(broken(3))
    asked = question(node("dgx1", mask(0, 3), mask(0, 3)), node("dgx2", ALL))
    assert [*decider.decide(asked).reply.nodes] == ["dgx2"]


def test_where_nothing_else_fits_the_broken_one_is_taken_and_told(site):
    decider = site(broken(3))
    decision = decider.decide(question(node("dgx1", mask(0, 3), mask(0, 3))))
    assert decision.reply.nodes == {"dgx1": mask(0, 3)}
    line = decision.record()
    assert line.marked == {"dgx1": ("GPU 3 broken: fell off the bus, by root",)}
    assert line.slurm.gpus == {"dgx1": (0, 3)}
    words = in_words(story_of(7, [replace(line, time="T")], "decision log"))
    assert "marked        dgx1: GPU 3 broken: fell off the bus, by root" in words


def test_gpus_are_called_as_slurm_counts_them(site):
    """On `mirrored` Slurm's GPU 4 is the topology's 3, which is what tools call it."""
    decider = site(broken(3, "mirrored"))
    decision = decider.decide(question(node("mirrored", ALL, mask(4))))
    assert decision.reply.nodes != {"mirrored": mask(4)}
    assert decision.record().marked == {"mirrored": ("GPU 4 broken: fell off the bus, by root",)}


def test_broken_slices_are_left_alone(site):
    text = BASIC.replace(
        "partitions:",
        "  - {{nodes: mig1, topology: a100-pcie-bridged,"
        " slices: [0-5, 6/3g.20gb*2, 7/3g.20gb*2]}}\npartitions:",
    )
    decider = site(broken(6, "mig1"), text=text)
    asked = question(node("mig1", (1 << 10) - 1, mask(6), total=10), type="3g.20gb")
    assert decider.decide(asked).reply.nodes == {"mig1": mask(8)}
    left = question(node("mig1", mask(6, 7), mask(6), total=10), type="3g.20gb")
    assert decider.decide(left).reply.nodes == {"mig1": mask(6)}


def test_a_kept_cluster_knows_the_marks_and_learns_of_new_ones(tmp_path):
    """The table stays; the machines of it are those of the marks at each reload."""
    path = path_in(tmp_path / "state")
    engine = an_engine(tmp_path)
    names, full = ["dgx1", "dgx2"], [ALL, ALL]
    part = NodesPart(1, 7, 1, 1, 0, names, [8, 8], full, weight=[1, 1], type=["", ""])
    asyncio.run(engine.answer(encode_request(part)).later)

    def taken(free):
        changed = {at: now for at, now in enumerate(free) if now != full[at]}
        full[:] = free
        own = next(at for at, some in enumerate(free) if some)
        asked = question(
            node(names[own], free[own], free[own] & -free[own]),
            changes=TableChanges(7, digest(free), changed, "0-1", None),
        )
        verb, pairs = split(engine.answer(encode_request(asked)).reply)
        assert verb == "use"
        assert "resync" not in dict(pairs)
        return dict(pairs)["node"]

    assert taken([mask(3), 0]) == "dgx1/8"
    change(path, lambda mark: False, [broken(3)])
    assert asyncio.run(engine.reload(engine.setup.config)) is None
    assert taken([mask(3), mask(5)]) == "dgx2/20"
    assert taken([mask(3), 0]) == "dgx1/8", "nothing else fits"
    change(path, lambda mark: True)
    assert asyncio.run(engine.reload(engine.setup.config)) is None
    assert taken([mask(3), mask(5)]) == "dgx1/8"


def test_a_damaged_file_leaves_the_marks_that_were_read_last(tmp_path, caplog):
    path = path_in(tmp_path / "state")
    change(path, lambda mark: False, [broken(3)])
    engine = an_engine(tmp_path)
    good = path.read_text()
    path.write_text(good + "{}\n")
    marks = engine.setup.marks
    assert marks.is_outdated(path)
    again = setup.load(engine.setup.config.path, marks=marks)
    assert again.machines["dgx1"].topology.broken == mask(3)
    assert marks.shown(9)["problem"].startswith(f"{path}:2: ")
    assert not marks.is_outdated(path)
    again = setup.load(engine.setup.config.path, marks=marks)
    said = [record for record in caplog.records if "the marks read last stay" in record.message]
    assert len(said) == 1, "once, not at every look"
    assert good


def test_marks_of_parts_that_a_node_has_not_are_left_out(tmp_path, caplog):
    marks = {"minsky1": (Mark("minsky1", "gpu 7", "broken"), Mark("minsky1", "gpu 1", "broken"))}
    machines = load_machines(basic_config(tmp_path), marks)
    assert machines["minsky1"].topology.broken == mask(1)
    assert "mark of minsky1 is left out: GPU 7 broken" in caplog.text


def test_nodes_marked_alike_for_different_reasons_are_told_apart(site):
    decider = site(broken(3), Mark("dgx2", "gpu 3", "broken", why="Xid 79", by="root"))
    for name, why in (("dgx1", "fell off the bus"), ("dgx2", "Xid 79")):
        line = decider.decide(question(node(name, ALL, 1))).record()
        assert line.marked == {name: (f"GPU 3 broken: {why}, by root",)}
