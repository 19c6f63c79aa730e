"""Nodes with MIG slices: jobs of slices go by their GPUs, jobs of whole GPUs as ever."""

import pytest
from machines_in_tests import BASIC, basic_config, decider_of, mask, node, question
from msgspec.structs import replace

from bench.request_lines import encode_request
from slurm_plugin.base import node_lines
from slurm_plugin.base.log_lines import plain
from slurm_plugin.base.protocol import Pass, Use, decode
from slurm_plugin.decide.kept_nodes import KeptNodes, Others, ToldNodes
from slurm_plugin.decide.load_machines import load_machines
from slurm_plugin.decide.machines import other_gpus, profile_for
from slurm_plugin.errors import ConfigError
from slurm_plugin.tell.explain.machines import shown
from slurm_plugin.tell.explain.story import story_of
from slurm_plugin.tell.explain.text import in_words

#: Slurm's 0 to 3 are whole, 4 and 5 are of GPU 4, 6 and 7 of GPU 5, 8 to 14 of GPU 6, then GPU 7.
SLICES = "[0-3, 4/3g.20gb*2, 5/3g.20gb*2, 6/1g.5gb*7, 7/1g.5gb*7]"
TEXT = BASIC.replace(
    "partitions:",
    f'  - {{{{nodes: "mig[1-3]", topology: a100-pcie-bridged, slices: "{SLICES}"}}}}\npartitions:',
).replace(f'"{SLICES}"', SLICES)
TOTAL = 22
ALL = (1 << TOTAL) - 1


@pytest.fixture(scope="module")
def decider(tmp_path_factory):
    return decider_of(basic_config(tmp_path_factory.mktemp("slices"), TEXT))


def mig(name, free=ALL, own=0):
    return node(name, free, own, total=TOTAL)


def test_a_job_of_slices_gets_one_of_the_gpu_in_use(decider):
    free = ALL & ~mask(16)
    asked = question(mig("mig1", free, mask(8)), type="1g.5gb")
    decision = decider.decide(asked)
    assert decision.reply.nodes == {"mig1": mask(15)}
    assert decision.reply.note == "mig1:15 by slices: 1g.5gb by GPU: GPUs in use"
    line = decision.record()
    assert line.policy == "slices"
    assert plain(line)["chosen"] == {
        "gpus": {"mig1": [15]}, "of_gpus": {"mig1": [7]}, "begun": 0, "untouched": 7
    }  # fmt: skip
    assert plain(line)["slurm"] == {
        "gpus": {"mig1": [8]}, "of_gpus": {"mig1": [6]}, "begun": 1, "untouched": 6
    }  # fmt: skip
    words = in_words(story_of(7, [replace(line, time="T1")], "decision log"))
    assert "chosen        mig1: 15  slices of GPU 7, 0 GPUs begun, 7 untouched there" in words
    assert "Slurm's own   mig1: 8  slices of GPU 6, 1 GPU begun, 6 untouched there" in words


def test_the_type_may_have_the_gpus_name_before_the_profile(decider):
    asked = question(mig("mig1", ALL & ~mask(16), mask(8)), type="a100_1g.5gb")
    assert decider.decide(asked).reply.nodes == {"mig1": mask(15)}


def test_the_node_with_a_gpu_in_use_is_taken_first(decider):
    asked = question(mig("mig1", ALL, mask(4)), mig("mig2", ALL & ~mask(6)), type="3g.20gb")
    reply = decider.decide(asked).reply
    assert reply.nodes == {"mig2": mask(7)}
    assert reply.alt == {"mig1": mask(4)}


@pytest.mark.parametrize("kind", ["mi300x", "", "cpx"])
def test_a_type_need_not_name_the_only_profile_there_is(tmp_path, kind):
    """AMD's partitions, as gpu/rsmi finds them: GPU 1 is in use, GPU 0 is begun by Slurm."""
    text = TEXT.replace("a100-pcie-bridged", "mi300a").replace(SLICES, "[0/cpx*6, 1-3/cpx*6]")
    text = text.replace("1-3/cpx*6", "1/cpx*6, 2/cpx*6, 3/cpx*6")
    decider = decider_of(basic_config(tmp_path, text))
    free = (1 << 24) - 1 & ~mask(6)
    asked = question(node("mig1", free, mask(0, 1), total=24), type=kind)
    decision = decider.decide(asked)
    assert decision.reply.nodes == {"mig1": mask(7, 8)}
    machine = decider.machines["mig1"]
    assert other_gpus(machine, {"mi300x": 24}) == ""
    assert "Slurm counts 23 mi300x" in other_gpus(machine, {"mi300x": 23})
    # Beside others of the table it is found, too.
    told = ToldNodes(["mig1"], [24], [free], [1], ["mi300x"])
    kept = KeptNodes(told, decider.machines)
    assert kept.sliced.among("0-0", "cpx", None) == 1
    assert profile_for(kind, ["mig1"], decider.machines) == "cpx"
    assert profile_for("v100", ["mig1", "dgx1"], decider.machines) == ""


def test_a_job_of_whole_gpus_is_placed_by_links(decider):
    """The bridge joins 0 and 2, whatever slices are in use."""
    for free in (ALL, ALL & ~mask(4, 9, 16)):
        decision = decider.decide(question(mig("mig1", free, mask(0, 1)), type="a100"))
        assert decision.reply.nodes == {"mig1": mask(0, 2)}
        assert decision.record().chosen.effbw_gbps > 50


LEFT = [
    ("slices where none are declared", node("dgx1", 0xFF, mask(0)), "1g.5gb",
     "dgx1: no slices are declared for it in gputopo.yaml"),
    ("Slurm's own choice is another profile", mig("mig1", ALL, mask(4)), "1g.5gb",
     "mig1: Slurm's GPU 4 is no 1g.5gb slice by slices: in gputopo.yaml"),
    ("Slurm's own choice is whole", mig("mig1", ALL, mask(0)), "1g.5gb",
     "mig1: Slurm's GPU 0 is no 1g.5gb slice by slices: in gputopo.yaml"),
    ("Slurm's own choice is a slice", mig("mig1", ALL, mask(3, 4)), "a100",
     "mig1: Slurm's GPU 4 is no whole GPU by slices: in gputopo.yaml"),
    ("another number of slices", node("mig1", 0xFF, mask(4)), "3g.20gb",
     "mig1: Slurm says 8 GPUs, slices: in gputopo.yaml 22"),
    ("another number of slices beside a whole GPU", node("mig1", 0xFF, mask(0)), "a100",
     "mig1: Slurm says 8 GPUs, slices: in gputopo.yaml 22"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("own", "kind", "note"), [pytest.param(*row[1:], id=row[0]) for row in LEFT]
)
def test_what_is_not_as_declared_is_left_to_slurm(decider, own, kind, note):
    reply = decider.decide(question(own, type=kind)).reply
    assert reply == Pass(f"Slurm's own choice: {note}")


def kept_nodes(decider, **changes):
    names = ["dgx1", "mig1", "mig2", "mig3", "bad"]
    told = {
        "names": names,
        "total": [8, TOTAL, TOTAL, TOTAL, 7],
        "free": [0xFF, ALL, ALL, 0, 0x7F],
        "weight": [1] * 5,
        "type": ["v100", "a100", "a100", "a100", "1g.5gb"],
    }
    return KeptNodes(ToldNodes(**told | changes), decider.machines)


def answer(decider, kept, own, kind, others="0-4"):
    profile = "slice" if "g." in kind else ""
    seen = kept.sliced if profile else kept.whole
    among = seen.among(others, kind, None)
    asked = question(own, type=kind, others=Others(kept, seen, among))
    return decider.decide(asked).reply


def test_of_a_kept_cluster_the_node_in_use_is_taken(decider):
    kept = kept_nodes(decider)
    kept.take({2: ALL & ~mask(14)})
    reply = answer(decider, kept, mig("mig1", ALL, mask(8)), "1g.5gb")
    assert reply == Use({"mig2": mask(8)}, {"mig1": mask(8)}, reply.note)
    # Whole GPUs of the same cluster: what slices are in use does not matter.
    reply = answer(decider, kept, mig("mig1", ALL, mask(0, 1)), "a100")
    assert reply.nodes == {"mig1": mask(0, 2)}
    assert kept.digest == node_lines.digest(kept.free)


def test_a_job_of_no_type_gets_no_node_that_has_slices(decider):
    """Slurm may give it whole GPUs and slices at once."""
    kept = kept_nodes(decider)
    assert kept.whole.among("0-4", "", None).bit_count() == 1
    assert kept.whole.among("0-4", "a100", None).bit_count() == 2
    assert kept.sliced.among("0-4", "1g.5gb", None).bit_count() == 2
    assert kept.sliced.among("0-4", "7g.40gb", None) == 0


def test_slices_that_nobody_declared_are_no_gpus(decider):
    """Seven slices of one GPU look like the seven GPUs of a node that is declared without them."""
    kept = kept_nodes(decider, names=["a", "b", "c", "d", "dgx1"], total=[0] * 4 + [8])
    assert kept.excluded["dgx1"] == "no slices are declared for it in gputopo.yaml"


def test_the_type_of_a_question_reaches_the_decider():
    asked = question(mig("mig1", ALL, mask(8)), type="1g.5gb")
    assert decode(encode_request(asked).rstrip(b"\n")).type == "1g.5gb"


REFUSED = [
    ("[0-6]", "slices: GPU 7 stands nowhere"),
    ("[0-6, 7/3g.20gb*3]", "GPU 7: 3 3g.20gb do not fit on one GPU"),
    ("[0-6, 7/v100]", "7/v100: 'v100' is no MIG profile"),
    ("7", "nodes[3].slices: expected a list"),
    ("[0-7], slurm_index: [7, 6, 5, 4, 3, 2, 1, 0]", "leave out slurm_index"),
]


@pytest.mark.parametrize(("written", "says"), REFUSED)
def test_a_bad_declaration_is_refused_with_its_line(tmp_path, written, says):
    text = TEXT.replace(SLICES, written)
    with pytest.raises(ConfigError) as error:
        load_machines(basic_config(tmp_path, text))
    assert says in str(error.value)
    assert "gputopo.yaml:11: nodes[3]" in str(error.value)


def test_slots_know_no_slices(tmp_path):
    with pytest.raises(ConfigError, match=r"gputopo\.yaml:11: .*expected enforcement: select"):
        load_machines(basic_config(tmp_path, "enforcement: slots\n" + TEXT.lstrip("\n")))


COUNTS = {"a100": 4, "3g.20gb": 4, "1g.5gb": 14}


def test_slurms_types_are_compared_with_the_declared_ones(decider):
    machine = decider.machines["mig1"]
    assert other_gpus(machine, COUNTS) == ""
    assert other_gpus(machine, {"a100": 4, "a100_3g.20gb": 4, "a100_1g.5gb": 14}) == ""
    others = {"1g.5gb": 14, "a100": 4, "3g.20gb": 4}
    assert other_gpus(machine, others) == (
        "Slurm counts 14 1g.5gb, 4 a100, 4 3g.20gb; slices: in gputopo.yaml says 4 whole,"
        " 4 3g.20gb, 14 1g.5gb"
    )


def test_a_drawing_names_the_slices_of_each_gpu(decider):
    machine = decider.machines["mig1"]
    assert machine.names == [0, 1, 2, 3, "4-5", "6-7", "8-14", "15-21"]
    told = shown(decider.machines, {"chosen": {"gpus": {"mig1": [15]}}})
    assert told["mig1"]["order"][15] == 7
    assert told["mig1"]["topology"]["gpus"] == 8
