"""Host lists as slurm.conf writes them."""

from __future__ import annotations

import pytest

from gres_topology.hostlist import MAX_NAME, expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ("n1",)),
        ("dgx[1-2,5]", ("dgx1", "dgx2", "dgx5")),
        ("n[08-10]", ("n08", "n09", "n10")),
        ("a,b[1-2],c", ("a", "b1", "b2", "c")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("n1,n1", ("n1",)),
        ("n[000-999],m[000-999]", tuple(f"{c}{i:03}" for c in "nm" for i in range(1000))),
        ("gpu-[1]-a.site", ("gpu-1-a.site",)),
        ("a,,b[1-2],", ("a", "b1", "b2")),
        (" a b\t,c\n", ("a", "b", "c")),
    ],
)
def test_a_host_list_names_each_node_once(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


def test_names_are_as_long_as_the_longest_number_makes_them() -> None:
    """Whichever of the ranges that is."""
    stem = "n" * (MAX_NAME - 2)
    assert len(expand(f"{stem}[1-2,10]")) == 3
    for text in (f"{stem}[1-2,100]", f"{stem}[100,1-2]", f"{stem}[001]"):
        with pytest.raises(ValueError, match=f"longer than {MAX_NAME} characters"):
            expand(text)


@pytest.mark.parametrize(
    "text",
    ["", "n[", "n]", "n[1-]", "n[3-1]", "n[a]", "n[1-2", ",", " ", "n[[1]]", "n[1-999999]",
     "a[1-400]b[1-400]", "n;rm"],
)  # fmt: skip
def test_anything_else_is_refused_and_quoted(text: str) -> None:
    with pytest.raises(ValueError, match=r"'|\["):
        expand(text)
