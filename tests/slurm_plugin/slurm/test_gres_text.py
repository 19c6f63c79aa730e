"""Slurm's GRES text in every form the releases print."""

import pytest

from slurm_plugin.slurm import gres_text


@pytest.mark.parametrize(
    ("text", "counts", "indices"),
    [
        ("gpu:v100:8(S:0-1)", {"v100": 8}, ()),
        ("gpu:v100:2(IDX:0,3)", {"v100": 2}, (0, 3)),
        ("gpu:(null):4(IDX:0-3)", {"": 4}, (0, 1, 2, 3)),
        ("gpu:4", {"": 4}, ()),
        ("gpu:2(IDX:5,7)", {"": 2}, (5, 7)),
        ("gpu:s1:1(IDX:1),gpu:s6:1(IDX:6)", {"s1": 1, "s6": 1}, (1, 6)),
        ("gpu:v100:0(IDX:N/A)", {"v100": 0}, ()),
        ("gpu:a100:2(IDX:0-1),gpu:t4:1(IDX:5),shard:4", {"a100": 2, "t4": 1}, (0, 1, 5)),
        ("gres:gpu:2,gres/gpu:tesla:1", {"": 2, "tesla": 1}, ()),
        ("gpu:1g.5gb:7", {"1g.5gb": 7}, ()),
        ("gpu", {"": 1}, ()),
        ("gres/gpu=2,cpu=4,gres/gpu:v100=1", {"": 2, "v100": 1}, ()),
        ("lic:2(IDX:1)", {}, ()),
        ("", {}, ()),
        ("(null)", {}, ()),
    ],
)
def test_counts_by_type_and_indices(text, counts, indices):
    assert gres_text.counts(text) == counts
    assert gres_text.indices(text) == indices


@pytest.mark.parametrize("text", ["gpu:v100:x", "gpu:a:b:c", "!!"])
def test_what_is_no_gres_is_refused(text):
    with pytest.raises(ValueError, match="expected NAME"):
        gres_text.counts(text)
