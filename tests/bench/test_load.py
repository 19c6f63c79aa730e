"""The jobs and the blocks the benchmarks submit."""

from __future__ import annotations

import subprocess
from random import Random

import pytest

from bench.live.job_mix import mix, script
from bench.live.submit import Block, total
from bench.place import ours, scoring, search, searches
from gres_topology import catalog


def test_the_mix_holds_every_way_to_ask_for_gpus() -> None:
    words = {arg.split("=")[0] for args in mix(200, Random(1), ("gpu",)) for arg in args}
    expected = {"--gres", "--gpus", "--gpus-per-node", "--gpus-per-task", "--array", "--comment"}
    assert expected <= words


def test_the_mix_of_a_seed_is_always_the_same() -> None:
    assert mix(50, Random(2), ("gpu", "dgx")) == mix(50, Random(2), ("gpu", "dgx"))


def test_the_script_of_a_mix_is_valid_shell() -> None:
    rng = Random(1)
    text = script(mix(50, rng, ("gpu",)), rng, 1.0)
    assert text.count("sbatch") == 50
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)


def test_the_blocks_of_a_round_add_up() -> None:
    assert total([Block(10, 1.0, 0.5), Block(20, 2.0, 0.25)]) == Block(30, 3.0, 0.75)


@pytest.mark.parametrize("gpus", [2, 3, 4, 6])
@pytest.mark.parametrize("library", searches())
def test_a_librarys_search_finds_what_the_exact_search_finds(library: str, gpus: int) -> None:
    topology = catalog.load("dgx1v")
    found, took_s = search(searches()[library], topology, gpus)
    assert found == pytest.approx(ours(topology, gpus))
    assert took_s > 0


def test_a_search_that_takes_too_long_is_left() -> None:
    found, _ = search(searches()["networkx"], catalog.load("dgx1v"), 4, limit_s=0.0)
    assert found is None


def test_a_double_nvlink_pair_is_scored_as_the_paper_does() -> None:
    assert scoring(catalog.load("dgx1v"), 2)((0, 3)) == pytest.approx(39.08, abs=0.01)


def test_rings_beyond_the_paper_are_scored_by_their_narrowest_hop_or_the_cut() -> None:
    gbps = scoring(catalog.load("dgx1v"), 8)
    assert gbps((0, 1, 2, 3, 4, 5, 6, 7)) == pytest.approx(0.83 * 12)
    assert gbps((0, 3, 2, 1, 5, 6, 7, 4)) == pytest.approx(0.83 * 150)
