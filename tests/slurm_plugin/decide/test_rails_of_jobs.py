"""Jobs of several nodes on a rail-optimised network: the same rails on each, told to the user."""

import pytest
from machines_in_tests import BASIC, basic_config, basic_decider, mask, node, question
from msgspec import UNSET
from msgspec.structs import replace

from slurm_plugin.base.log_lines import LoggedSpine
from slurm_plugin.decide.load_machines import load_machines
from slurm_plugin.errors import ConfigError
from slurm_plugin.tell.explain.story import story_of
from slurm_plugin.tell.explain.text import in_words

TEXT = BASIC.replace("partitions:", '  - {{nodes: "h[1-4]", topology: dgx-h100}}\npartitions:')
LOW, HIGH = mask(0, 1, 2, 3), mask(4, 5, 6, 7)


@pytest.fixture(scope="module")
def decider(tmp_path_factory):
    return basic_decider(tmp_path_factory.mktemp("rails"), TEXT)


def test_both_nodes_give_the_same_rails_where_slurm_would_not(decider):
    asked = question(node("h1", 0xFF, LOW), node("h2", HIGH, HIGH))
    decision = decider.decide(asked)
    assert decision.reply.nodes == {"h1": HIGH, "h2": HIGH}
    line = decision.record()
    assert line.chosen.rails == {"h1": (4, 5, 6, 7), "h2": (4, 5, 6, 7)}
    assert line.chosen.spine == LoggedSpine(ring=0.0, tree=0.0, ring_total=3.5, tree_total=2.0)
    assert line.slurm.rails == {"h1": (0, 1, 2, 3), "h2": (4, 5, 6, 7)}
    assert line.slurm.spine.ring == 3.5
    words = in_words(story_of(7, [replace(line, time="T1")], "decision log"))
    assert (
        "rails 4,5,6,7 on each node, over the spine ring 0.00 of 3.50, tree 0.00 of 2.00 bytes per"
        " byte reduced" in words
    )
    assert "rails h1: 0,1,2,3; h2: 4,5,6,7, over the spine ring 3.50 of 3.50" in words


def test_on_slurms_own_nodes_too_the_rails_are_the_same(decider):
    """h1 and h3 suit each other and are taken; should that fail, h1 and h2 have two in common."""
    asked = question(
        node("h1", LOW, mask(0, 1)), node("h2", HIGH | mask(2, 3), mask(2, 3)), node("h3", LOW)
    )
    reply = decider.decide(asked).reply
    assert reply.nodes == {"h1": mask(0, 1), "h3": mask(0, 1)}
    assert reply.alt == {"h1": mask(2, 3), "h2": mask(2, 3)}


def test_slurms_own_indices_are_told_beside_the_rails_of_those_gpus(tmp_path):
    """On h1 Slurm counts backwards: its GPUs 0 to 3 are on rails 7 to 4."""
    text = TEXT.replace(
        '"h[1-4]", topology: dgx-h100}}',
        "h1, topology: dgx-h100, slurm_index: [7, 6, 5, 4, 3, 2, 1, 0]}}\n"
        "  - {{nodes: h2, topology: dgx-h100}}",
    )
    decision = basic_decider(tmp_path, text).decide(
        question(node("h1", 0xFF, HIGH), node("h2", HIGH, HIGH))
    )
    assert decision.reply.nodes == {"h1": LOW, "h2": HIGH}
    chosen = decision.record().chosen
    assert chosen.gpus["h1"] == (3, 2, 1, 0)
    assert chosen.rails == {"h1": (4, 5, 6, 7), "h2": (4, 5, 6, 7)}


def test_rails_by_distance_are_said_to_be_so_and_jobs_of_one_node_have_none(decider):
    asked = question(node("dgx1", 0xFF, mask(0, 1)), node("dgx2", 0xFF, mask(0, 1)))
    line = decider.decide(asked).record()
    words = in_words(story_of(7, [replace(line, time="T1")], "decision log"))
    assert "on each node (by the NICs' distance), over the spine ring 0.00" in words
    alone = decider.decide(question(node("h1", 0xFF, LOW))).record()
    assert alone.chosen.rails is UNSET


def test_where_switches_reduce_it_is_said_what_they_send(tmp_path):
    names = "mlx5_0, mlx5_3, mlx5_4, mlx5_5, mlx5_6, mlx5_9, mlx5_10, mlx5_11"
    (tmp_path / "own.yaml").write_text(f"like: dgx-h100\nsharp: [{names}]\n")
    text = TEXT.replace("topology: dgx-h100", "topology: own.yaml")
    asked = question(node("h1", 0xFF, LOW), node("h2", HIGH, HIGH))
    line = basic_decider(tmp_path, text).decide(asked).record()
    words = in_words(story_of(7, [replace(line, time="T1")], "decision log"))
    assert "tree 0.00 of 2.00, SHARP 0.00 of 4.00 bytes per byte reduced" in words
    assert "tree 2.00 of 2.00, SHARP 4.00 of 4.00 bytes per byte reduced" in words


def test_machines_without_rails_say_nothing_of_them(decider):
    asked = question(node("minsky1", 0xF, mask(0, 1), total=4), node("h1", 0xFF, mask(0, 1)))
    assert decider.decide(asked).record().slurm.rails is UNSET


@pytest.mark.parametrize(
    ("rails", "told"),
    [
        (
            "{mlx5_9: 0}",
            r"own\.yaml line 4: rails: 'mlx5_9' is not among the NICs; nics has mlx5_0",
        ),
        ("{mlx5_0: first}", r"own\.yaml line 4: rails mlx5_0: 'first'; expected a number from 0"),
    ],
)
def test_rails_that_cannot_be_are_refused_with_both_lines(tmp_path, rails, told):
    machine = (
        f"like: dgx-h200\nname: own\nnics: {{mlx5_0: [{', '.join(['PIX'] * 8)}]}}\nrails: {rails}\n"
    )
    (tmp_path / "own.yaml").write_text(machine)
    config = basic_config(tmp_path, TEXT.replace("dgx-h100", "own.yaml"))
    with pytest.raises(ConfigError, match=rf"gputopo\.yaml:\d+: .*{told}"):
        load_machines(config)
