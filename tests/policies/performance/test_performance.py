"""Performance models: what they say, where they end, and reading runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.errors import ProfileError
from policies.performance import (
    INFERENCE,
    KINDS,
    Run,
    Shape,
    fit,
    fitting,
    from_dict,
    lightweight,
    read_runs,
    shapes_of,
    to_dict,
)
from policies.performance.calibrated import CalibratedModel
from policies.performance.paper import PaperModel

SHAPES = shapes_of(4, 4)


def overlapping(nodes, gpus, batch):
    """A made-up machine: compute linear in the batch, half-hidden synchronisation."""
    compute = 0.02 + 0.001 * batch
    if gpus == 1:
        return compute
    sync = 0.03 * (gpus - 1) ** 0.5 if nodes == 1 else 0.12 * nodes**0.2 * (gpus / nodes) ** 0.3
    return (compute**2 + sync**2) ** 0.5


def every_run():
    return [
        Run(shape.nodes, shape.gpus, batch, overlapping(shape.nodes, shape.gpus, batch))
        for shape in SHAPES
        for batch in (16, 32, 64, 128, 256)
    ]


def test_shapes_are_every_count_of_nodes_and_gpus():
    assert len(SHAPES) == 16
    assert (str(SHAPES[0]), str(SHAPES[-1]), SHAPES[-1].gpus) == ("1x1", "4x4", 16)


def test_the_largest_share_of_a_batch_decides():
    assert Shape(1, 3).local_batch(100) == 34


def test_a_batch_that_does_not_fit_one_gpu_has_only_shapes_that_hold_it():
    assert fitting(SHAPES, 512, 128)[0] == Shape(1, 4)
    assert all(shape.gpus >= 4 for shape in fitting(SHAPES, 512, 128))
    assert fitting(SHAPES, 2, 128) == [Shape(1, 1), Shape(1, 2), Shape(2, 1)]


def test_calibrated_finds_the_law_behind_exact_runs():
    runs = every_run()
    model = fit("calibrated", runs)
    measured = np.array([run.step_s for run in runs])
    assert np.abs(model.runs_s(runs) / measured - 1).max() < 0.08


def test_from_lightweight_runs_calibrated_beats_the_paper_on_the_rest():
    runs = every_run()
    light = lightweight(runs)
    rest = [run for run in runs if run not in light]
    measured = np.array([run.step_s for run in rest])
    mean = {
        kind: float(np.abs(fit(kind, light).runs_s(rest) / measured - 1).mean()) for kind in KINDS
    }
    assert mean["calibrated"] < 0.1
    assert mean["calibrated"] < mean["genie"]


def test_lightweight_runs_are_the_sweep_and_one_batch_over_nodes_and_gpus():
    light = lightweight(every_run())
    assert len(light) == 5 + 3 + 3
    assert {run.local_batch for run in light if run.gpus > 1} == {64}
    assert all(run.nodes in (1, run.gpus) for run in light)


def test_eq_5_to_8_hold_where_runs_obey_them():
    """sPR = 100 + b - b^2/400, gamma 0.5, lambda 0.4: found again from the runs."""

    def step(nodes, gpus, batch):
        per_node = gpus / nodes
        path = (nodes - 1) * per_node + 0.4 * (per_node - 1)
        comm = 0.5 * path / (gpus - 1) if gpus > 1 else 0.0
        return batch * gpus / ((gpus - comm) * (100 + batch - batch**2 / 400))

    runs = [
        Run(shape.nodes, shape.gpus, batch, step(shape.nodes, shape.gpus, batch))
        for shape in SHAPES
        for batch in (16, 32, 64, 128)
    ]
    model = fit("genie", lightweight(runs))
    assert isinstance(model, PaperModel)
    assert model.gamma == pytest.approx(0.5)
    assert model.gamma_lambda / model.gamma == pytest.approx(0.4)
    assert model.steps_s([Shape(3, 2)], 192)[0] == pytest.approx(step(3, 6, 32))


def test_a_negative_rate_is_held_above_zero():
    runs = [Run(1, 1, 8, 1.0), Run(1, 1, 16, 1.0), Run(2, 2, 8, 90.0), Run(4, 4, 8, 120.0)]
    assert (fit("genie", runs).steps_s(SHAPES, 64) > 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_inference_scales_with_the_gpus_whatever_the_nodes(kind):
    model = fit(kind, every_run())
    packed, spread, single = (
        model.steps_s([shape], batch, INFERENCE)[0]
        for shape, batch in ((Shape(1, 4), 256), (Shape(4, 1), 256), (Shape(1, 1), 64))
    )
    assert packed == spread == pytest.approx(single)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_comes_back_from_its_plain_data(kind):
    model = fit(kind, every_run(), startup_s=7.0)
    again = from_dict(to_dict(model))
    assert np.array_equal(again.steps_s(SHAPES, 256), model.steps_s(SHAPES, 256))
    assert again.estimate(Shape(2, 2), 64) == model.estimate(Shape(2, 2), 64)
    assert (again.startup_s, again.max_local_batch) == (7.0, 256)


def test_what_was_not_measured_is_less_certain():
    alone = fit("calibrated", [run for run in every_run() if run.nodes == 1])

    def reach(shape):
        estimate = alone.estimate(shape, 64 * shape.gpus)
        return estimate.high_s / estimate.low_s

    assert reach(Shape(1, 2)) < reach(Shape(4, 2))
    assert reach(Shape(1, 2)) < 1.6


def test_one_odd_measurement_does_not_bend_the_curve():
    runs = every_run()
    odd = [*runs[:20], Run(1, 1, 64, 9.0), *runs[20:]]
    ours, theirs = (fit("calibrated", rows).steps_s(SHAPES, 256) for rows in (odd, runs))
    assert np.abs(ours / theirs - 1).max() < 0.1


def test_a_single_run_is_enough_for_a_guess():
    model = fit("calibrated", [Run(1, 1, 32, 0.5)])
    assert model.steps_s([Shape(1, 1)], 32)[0] == pytest.approx(0.5, rel=0.01)
    assert model.estimate(Shape(4, 4), 512).high_s > 2 * 0.5


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.integers(1, 8), st.integers(1, 4), st.integers(1, 4096), st.floats(1e-4, 1e4)),
        max_size=12,
    )
)
def test_whatever_was_measured_steps_are_finite_and_positive(rows):
    runs = [Run(1, 1, 8, 0.1)] + [Run(n, n * g, b, s) for n, g, b, s in rows]
    for kind in KINDS:
        steps = fit(kind, runs).steps_s(SHAPES, 64)
        assert np.isfinite(steps).all()
        assert (steps > 0).all()


def test_runs_are_read_by_our_columns_and_polluxs():
    text = "nodes,gpus,local_batch,step_s\n2,8,32,0.25\n"
    assert read_runs(text) == [Run(2, 8, 32, 0.25)]
    text = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n2,8,32,0.25,0.1\n"
    assert read_runs(text) == [Run(2, 8, 32, 0.25)]
    text = "placement,local_bsz,step_time\n134,32,0.25\n"
    assert read_runs(text) == [Run(3, 8, 32, 0.25)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no rows; expected CSV with a header: nodes, gpus, local_batch, step_s"),
        ("nodes,gpus,local_batch\n1,1,8\n", "runs:2: no step_s; expected the columns"),
        ("nodes,gpus,local_batch,step_s\n1,1,8,-1\n", "step_s '-1'; expected a number greater"),
        ("nodes,gpus,local_batch,step_s\n1,1,8,nan\n", "step_s 'nan'; expected a number greater"),
        ("nodes,gpus,local_batch,step_s\n1,1,x,1\n", "local_batch 'x'; expected a number"),
        ("nodes,gpus,local_batch,step_s\n4,2,8,1\n", "2 GPUs on 4 nodes; expected whole numbers"),
        ("nodes,gpus,local_batch,step_s\n1,1,0.5,1\n", "local_batch 0; expected 1 or more"),
        ("placement,local_bsz,step_time\n1x,8,1\n", "placement '1x'; expected one digit per node"),
    ],
)
def test_runs_that_are_wrong_are_refused_with_the_line(text, said):
    with pytest.raises(ProfileError, match=r"^runs") as refused:
        read_runs(text)
    assert said in str(refused.value)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_single_gpu_run_there_is_no_model(kind):
    with pytest.raises(ProfileError, match="no run on a single GPU"):
        fit(kind, [Run(1, 2, 8, 0.1)])


def test_an_unknown_kind_and_foreign_data_are_refused():
    with pytest.raises(ProfileError, match="model 'x'; expected one of calibrated, genie"):
        fit("x", every_run())
    with pytest.raises(ProfileError, match="fit it again"):
        from_dict({"kind": "calibrated"})


def test_the_default_is_the_calibrated_model():
    assert isinstance(fit(KINDS[0], every_run()), CalibratedModel)
