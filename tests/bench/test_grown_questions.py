"""Recorded questions, grown, are still questions a slurmctld could ask."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from bench.questions import (
    MOST_CLONES,
    FreeMasks,
    grow,
    host_list,
    machines_of,
    random_mask,
    read,
    renumbered,
)
from bench.replay import KINDS, check
from gres_topology import hostlist
from slurm_plugin.protocol import Place, decode

LINE = (
    b"place id=7 job=7 array=0 uid=2001 partition=gpu postponed=0 waited_s=0"
    b" node=dgx1/8/ff/3/1 node=dgx2/8/f0/0/5\n"
)


def question() -> Place:
    """Two nodes, Slurm chose GPUs 0 and 1 of the first."""
    message = decode(LINE)
    assert isinstance(message, Place)
    return message


def masks(redrawn: float = 1.0, seed: int = 1) -> FreeMasks:
    return FreeMasks(Random(seed), redrawn)


def test_the_recording_holds_questions_of_several_sizes_and_with_hints() -> None:
    recorded = read()
    sizes = {node.own.bit_count() for asked in recorded for node in asked.candidates if node.own}
    assert len(recorded) >= 100
    assert {1, 2, 3, 4, 5} <= sizes
    assert any(asked.hint for asked in recorded)
    assert any(sum(node.own != 0 for node in asked.candidates) > 1 for asked in recorded)


def test_every_recorded_node_has_a_machine_of_the_catalog() -> None:
    assert set(machines_of(read(), KINDS)) >= {"dgx1", "dgx2", "minsky1", "bridged1", "amd1"}


def test_a_recorded_node_without_a_machine_is_named() -> None:
    with pytest.raises(ValueError, match="dgx1"):
        machines_of([question()], {"minsky": "minsky"})


def test_a_line_that_is_no_question_is_named(tmp_path: Path) -> None:
    path = tmp_path / "recorded"
    path.write_bytes(b"# comment\n" + LINE + b"ping id=1\n")
    with pytest.raises(ValueError, match=":3: a Admin"):
        read(path)


def test_growing_keeps_what_was_recorded_and_adds_clones() -> None:
    asked = question()
    grown = grow(asked, 1000, masks())
    assert len(grown.candidates) == 1000
    assert grown.candidates[:2] == asked.candidates
    assert len({node.name for node in grown.candidates}) == 1000
    assert all(node.own == 0 and node.total == 8 for node in grown.candidates[2:])
    assert {node.weight for node in grown.candidates[2:]} == {1, 5}


def test_a_grown_question_is_a_valid_line() -> None:
    grown = grow(question(), 1000, masks())
    assert decode(renumbered(grown, 7)) == grown


def test_a_question_with_enough_nodes_stays_as_it_is() -> None:
    assert grow(question(), 0, masks()) == question()


def test_the_same_seed_grows_the_same_question() -> None:
    assert grow(question(), 50, masks(seed=3)) == grow(question(), 50, masks(seed=3))
    assert grow(question(), 50, masks(seed=3)) != grow(question(), 50, masks(seed=4))


def test_only_the_redrawn_share_of_the_nodes_changes_between_questions() -> None:
    state = masks(redrawn=0.01)
    first, second = (grow(question(), 1000, state).candidates for _ in range(2))
    changed = sum(a.free != b.free for a, b in zip(first, second, strict=True))
    assert 0 < changed < 50


def test_free_masks_reach_from_none_to_all_and_stay_on_the_node() -> None:
    rng = Random(1)
    counts = [random_mask(8, rng).bit_count() for _ in range(2000)]
    assert set(counts) == set(range(9))
    assert all(random_mask(8, rng) < 1 << 8 for _ in range(2000))


def test_the_engines_host_list_covers_every_clone() -> None:
    names = hostlist.expand(host_list("dgx1"))
    assert len(names) == MOST_CLONES + 1
    grown = grow(question(), 1000, masks())
    covered = {name for origin in ("dgx1", "dgx2") for name in hostlist.expand(host_list(origin))}
    assert {node.name for node in grown.candidates} <= covered


def test_a_reply_with_a_busy_gpu_stops_the_benchmark() -> None:
    assert check(question(), b"use id=7 node=dgx2/30\n") == "use"
    with pytest.raises(AssertionError, match="not free"):
        check(question(), b"use id=7 node=dgx2/3\n")
