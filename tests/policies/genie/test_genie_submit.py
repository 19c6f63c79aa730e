"""What a job says for policy=genie, and what it is refused for."""

from __future__ import annotations

import pytest

from policies.contract.hint_keys import KEYS
from policies.contract.scheduling import Platform
from policies.errors import HintError
from policies.genie.submit import HINTS, Within, candidates, read, task_of, too_late
from policies.genie.tasks import TaskConstraints, TaskMaker
from policies.performance import Run, Shape, Work, fit

NOW = 1_795_000_000.0
PLATFORM = Platform(4, 4)
RUNS = [Run(1, 1, 64, 0.1), Run(1, 1, 128, 0.18), Run(1, 1, 256, 0.35), Run(1, 2, 128, 0.19),
        Run(1, 4, 128, 0.2), Run(2, 2, 128, 0.22), Run(4, 4, 128, 0.23)]  # fmt: skip
MAKER = TaskMaker(PLATFORM, {("resnet50", "training"): fit("calibrated", RUNS)})
GIVEN = {"profile": "resnet50", "batch": "256", "iterations": "20000", "class": "prior"}


def test_the_keys_are_those_of_the_grammar():
    assert set(HINTS) <= set(KEYS.values())


def test_a_hint_becomes_work_and_wish():
    asked = read(GIVEN, NOW)
    assert asked.work == Work("resnet50", 256, 20000, "training")
    assert asked.constraints == TaskConstraints("prior")
    task = task_of(7, asked, MAKER, NOW)
    assert task.deadline_s - NOW == pytest.approx(20000 * 0.35, rel=0.05)


def test_without_a_class_a_job_is_normal_training():
    asked = read({key: GIVEN[key] for key in ("profile", "batch", "iterations")}, NOW)
    assert (asked.constraints.service, asked.work.task) == ("normal", "training")


def test_a_deadline_may_be_a_duration_or_a_time():
    assert read({**GIVEN, "deadline": "90m"}, NOW).constraints.deadline_s == NOW + 5400
    assert (
        read({**GIVEN, "deadline": "2030-01-01T00:00Z"}, NOW).constraints.deadline_s == 1893456000
    )


def test_shapes_the_user_fixed_are_respected():
    asked = read(GIVEN, NOW, shapes=(Shape(2, 1),))
    assert [str(one.shape) for one in candidates(task_of(1, asked, MAKER, NOW), PLATFORM, NOW)] == [
        "2x1"
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"batch": "0"}, "batch: '0'; expected a whole number from 1 to 1000000000"),
        ({"iterations": "-5"}, "iterations: '-5'; expected a whole number from 1"),
        (
            {"iterations": None},
            "iterations: missing; policy=genie needs profile, batch, iterations",
        ),
        ({"class": "vip"}, "class: 'vip'; expected urgent, prior, normal"),
        ({"task": "fun"}, "task: 'fun'; expected training, inference"),
        ({"deadline": "soon"}, "deadline: 'soon'; expected a duration such as 90m"),
        ({"deadline": "0m"}, r"deadline: 0m has passed \(0.0 h ago\); expected a time to come"),
        ({"deadline": "2026-11-18T00:00Z"}, "deadline: 2026-11-18T00:00Z has passed"),
    ],
)
def test_bad_input_is_refused_in_one_line_that_names_the_key(change, said):
    values = {key: value for key, value in {**GIVEN, **change}.items() if value is not None}
    with pytest.raises(HintError, match=said) as refused:
        read(values, NOW)
    assert "\n" not in str(refused.value)


def test_a_class_the_site_does_not_allow_is_refused():
    with pytest.raises(HintError, match="class: 'prior' is not for this job; expected normal"):
        read(GIVEN, NOW, allowed=("normal",))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"profile": "gpt"}, "profile: no profile 'gpt' for training; expected one of resnet50"),
        ({"task": "inference"}, "profile: no profile 'resnet50' for inference"),
        ({"batch": "9999"}, "batch: batch 9999 of resnet50 fits no shape of up to 4x4 GPUs"),
    ],
)
def test_what_no_model_or_shape_can_serve_is_refused(change, said):
    with pytest.raises(HintError, match=said):
        task_of(1, read({**GIVEN, **change}, NOW), MAKER, NOW)


@pytest.mark.parametrize(
    ("within", "expected_s"), [(Within(3), 3 * 20000 * 0.35), (Within(seconds=7200), 7200)]
)
def test_a_class_lasts_as_long_as_the_site_says(within, expected_s):
    task = task_of(1, read(GIVEN, NOW), MAKER, NOW, {"prior": within})
    assert task.deadline_s - NOW == pytest.approx(expected_s, rel=0.05)


def test_an_explicit_deadline_goes_before_the_class():
    task = task_of(1, read({**GIVEN, "deadline": "2h"}, NOW), MAKER, NOW, {"prior": Within(0)})
    assert task.deadline_s == NOW + 7200


def test_a_job_that_cannot_be_in_time_is_told_so():
    task = task_of(1, read({**GIVEN, "deadline": "5m"}, NOW), MAKER, NOW)
    said = too_late(task, PLATFORM, NOW)
    assert said.startswith("cannot be done in time: ")
    assert said.endswith("deadline in 0.08 h")


@pytest.mark.parametrize("service", ["urgent", "prior", "normal"])
def test_a_job_that_can_be_is_not_nor_one_that_is_urgent(service):
    task = task_of(1, read({**GIVEN, "class": service}, NOW), MAKER, NOW)
    assert too_late(task, PLATFORM, NOW) == ""


def test_candidates_are_every_shape_best_ratio_first():
    found = candidates(task_of(1, read(GIVEN, NOW), MAKER, NOW), PLATFORM, NOW)
    assert len(found) == 16
    assert [one.ratio for one in found] == sorted((one.ratio for one in found), reverse=True)
    by_shape = {str(one.shape): one for one in found}
    assert by_shape["1x4"].cost == pytest.approx(0.35)
    assert by_shape["1x4"].is_in_time
    assert by_shape["1x1"].is_in_time
