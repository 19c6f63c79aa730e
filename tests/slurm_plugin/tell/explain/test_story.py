"""One job's records as a story: what is last, what came before, who may see it."""

from dataclasses import replace as replace_machine
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from gres_topology import catalog
from slurm_plugin.base.log_lines import Line, of_plain
from slurm_plugin.decide.machines import Machine
from slurm_plugin.tell.explain.story import gpus_of, may_see, story_of
from slurm_plugin.tell.explain.text import in_words

SCORES = {"score": 40.0, "effbw_gbps": 40.0, "agg_gbps": 50.0, "preserved_gbps": 400.0}


def record(decision: str, job: int = 5, **more: Any) -> Line:
    return of_plain({
        "time": "2026-01-01T00:00:00", "job": job, "array": 0, "uid": 1000, "partition": "gpu",
        "hint": "pattern=ring", "mode": "enforce", "decision": decision, "applied": True,
        "why": "placed", "note": "", "policy": "mapa", "pattern": "ring", "gpus_per_node": [2],
        "candidate_nodes": 2, "reason": "ring: 40 GB/s",
        "slurm": {"gpus": {"n1": [0, 1]}, **SCORES, "effbw_gbps": 20.0, "pcie_hops": 1},
        "chosen": {"gpus": {"n1": [3, 0]}, **SCORES},
        "candidates": [{"gpus": {"n1": [3, 0]}, **SCORES}, {"gpus": {"n2": [1, 2]}, **SCORES}],
        **more,
    })  # fmt: skip


def started(job: int = 5, **gpus: list[int]) -> Line:
    return of_plain({"time": "T2", "job": job, "array": 0, "decision": "started", "gpus": gpus})


WAIT = record("wait", note="mapa: a pair comes free", wait_s=30)


def test_postponements_and_the_start_are_told_beside_the_last_decision():
    told = story_of(5, [WAIT, WAIT, record("use"), started(n1=[0, 3])], "decision log")
    assert told["decision"] == "use"
    assert [r["wait_s"] for r in told["earlier"]] == [30, 30]
    words = in_words(told)
    assert "2 GPUs in partition gpu (enforce); hint: pattern=ring" in words
    assert "because       ring: 40 GB/s" in words
    assert "n1: 3,0  40.0 GB/s for its pattern" in words
    assert "Slurm's own   n1: 0,1" in words
    assert "1 PCIe hops" in words
    assert words.count("looked at") == 2
    assert words.count("postponed 30 s: mapa: a pair comes free") == 2
    assert "not as chosen" not in words


def test_how_nvlink_joins_the_nodes_of_a_job_is_told():
    tray = Machine(catalog.load("gb200-tray"), domain="a.1")
    machines = {"n1": tray, "n2": tray, "m1": replace_machine(tray, domain="b.1")}
    chosen = {"gpus": {"n1": [0, 1], "m1": [0, 1]}, **SCORES}
    told = story_of(5, [record("use", chosen=chosen)], "", machines=machines)
    assert "NVLink        its nodes are of no one NVLink domain: n1 in a.1" in in_words(told)
    told = story_of(5, [record("use", chosen=chosen), started(n1=[0], n2=[0])], "", 0, machines)
    assert "NVLink        its nodes are of one NVLink domain, a.1" in in_words(told)
    assert "nvlink" not in story_of(5, [record("use", chosen=chosen)], "")


def test_a_start_elsewhere_is_said():
    told = story_of(5, [record("use"), started(n1=[4, 5])], "decision log")
    assert "n1: 4,5  (not as chosen" in in_words(told)
    assert gpus_of(told) == {"n1": [4, 5]}


def test_gpus_are_drawn_in_rank_order_where_they_are_known():
    assert gpus_of(story_of(5, [record("use"), started(n1=[0, 3])], "")) == {"n1": [3, 0]}
    assert gpus_of(story_of(5, [record("use", applied=False)], "")) == {"n1": [0, 1]}


def test_a_start_of_an_earlier_run_is_not_the_start_of_this_one():
    told = story_of(5, [record("use"), started(n1=[0, 3]), record("use")], "")
    assert "started" not in told


def test_of_an_array_every_task_is_named():
    records = [record("use", job=job, array=10) for job in (11, 12, 10)]
    told = story_of(10, records, "decision log")
    assert told["job"] == 10
    assert [task["job"] for task in told["tasks"]] == [11, 12]
    assert "job 11  use  n1: 3,0" in in_words(told)


def test_a_pass_says_why_and_a_wait_what_would_be():
    passed = record("pass", note="Slurm's own choice: opted out by hint")
    passed.chosen = passed.reason = UNSET
    words = in_words(story_of(5, [passed], ""))
    assert "left to Slurm's own choice" in words.splitlines()[0]
    assert "because       Slurm's own choice: opted out by hint" in words
    assert "would be now  n1: 3,0" in in_words(story_of(5, [WAIT], ""))


def test_a_stranger_sees_nothing_and_an_owner_only_their_own():
    mine, theirs = record("use", job=1, uid=7), record("use", job=2, uid=8)
    records = [mine, theirs, started(job=1, n1=[0]), started(job=2, n1=[1])]
    assert may_see(records, 9) == []
    assert {r.job for r in may_see(records, 7)} == {1}
    assert len(may_see(records, 7)) == 2


def test_nothing_in_a_story_can_move_the_cursor():
    words = in_words(story_of(5, [record("use", hint="\x1b[2J\x9b2J\r")], ""))
    assert words.replace("\n", "").isprintable()


def test_a_policy_of_terms_shows_them_for_the_choice_and_for_what_it_was_chosen_over():
    terms = {"communication": 0.25, "interference": 1.0, "fragmentation": 0.5}
    chosen = {"gpus": {"n1": [0, 1]}, **SCORES, "score": 0.58, "terms": terms}
    other = {"gpus": {"n2": [0, 2]}, "score": 0.33, "terms": dict.fromkeys(terms, 0.33)}
    words = in_words(story_of(5, [record("use", chosen=chosen, candidates=[other])], ""))
    own = "utility 0.58 (communication 0.25, interference 1.00, fragmentation 0.50)"
    assert f"chosen        n1: 0,1  {own}, 40.0 GB/s for its pattern" in words
    assert "looked at     n2: 0,2  utility 0.33 (communication 0.33" in words
    assert " 0.0 GB/s" not in words


SHAPE = of_plain({
    "time": "T0", "job": 5, "array": 0, "uid": 1000, "partition": "dl", "hint": "policy=genie",
    "decision": "shape", "shape": "1x4", "why": "the highest ratio", "note": "", "service": "prior",
    "deadline": 1_795_000_000, "allowance_s": 60.0, "starts": False, "shapes_left_out": 3,
    "shapes": [
        {"shape": "1x4", "latency_s": 121.4, "cost": 0.45, "ratio": 1171.2, "in_time": True},
        {"shape": "1x1", "latency_s": 400.0, "cost": 0.2625, "ratio": 609.6, "in_time": False},
    ],
})  # fmt: skip


def test_of_a_waiting_job_its_shape_is_told_and_those_it_could_have_had():
    words = in_words(
        story_of(5, [replace(SHAPE, shape="1x2", why="earlier"), SHAPE], "decision log")
    )
    assert "job 5  T0  shaped" in words
    assert "asked         a shape in partition dl; hint: policy=genie" in words
    assert "shape         1x4  the highest ratio" in words
    assert "2026-11-18T11:06:40+00:00  class prior, then could wait 60 s more" in words
    assert "could be      1x4  121.4 s, cost 0.450, ratio 1,171" in words
    assert "1x1  400.0 s, cost 0.263, ratio 609.6  too late" in words
    assert "could be      and 3 more" in words
    assert "before        T0  shape 1x2: earlier" in words


def test_beside_its_placement_a_jobs_shape_is_told_too():
    records = [SHAPE, record("use"), started(n1=[0, 3])]
    told = story_of(5, records, "decision log")
    assert (told["decision"], told["shaping"]["shape"], told["earlier"]) == ("use", "1x4", [])
    words = in_words(told)
    assert "placed" in words
    assert "shape         1x4" in words
    late = in_words(story_of(5, [replace(SHAPE, allowance_s=-5.0), *records[1:]], ""))
    assert "5 s late as predicted" in late
    assert may_see(records, 1001) == []
