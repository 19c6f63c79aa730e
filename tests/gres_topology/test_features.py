"""Slurm's --constraint on the features of one node."""

import pytest

from gres_topology import features


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("", True),
        ("v100", True),
        ("a100", False),
        ("v100&ib", True),
        ("a100|ib", True),
        ("(a100|v100)&ib", True),
        ("(a100|v100)&no", False),
        ("a100&x|ib", True),
    ],
)
def test_constraints_are_judged_as_slurm_does(expression, expected):
    assert features.holds(expression, {"v100", "ib"}) is expected


@pytest.mark.parametrize("expression", ["[a|b]", "a*2", "(a", "a&", "a,b", "a)b"])
def test_constraints_over_several_nodes_are_not_guessed_at(expression):
    with pytest.raises(features.Unsupported):
        features.holds(expression, {"a"})
