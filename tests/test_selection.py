"""Which tests the short and the long run take, and in which order."""

from pathlib import Path

import pytest

pytest_plugins = "pytester"

CONFTEST = (Path(__file__).parent / "conftest.py").read_text()
LIVE = """
import pytest
@pytest.fixture
def enforced_by(request):
    return request.param
both = pytest.mark.parametrize("enforced_by", ["select", "slots"], indirect=True)
@both
def test_always(enforced_by): ...
@both
@pytest.mark.long("why")
def test_long(enforced_by): ...
@both
@pytest.mark.long("why", "slots")
def test_long_with_slots(enforced_by): ...
"""


@pytest.fixture
def tests(pytester: pytest.Pytester) -> pytest.Pytester:
    """A file without a cluster, and two with one: a small and a large one."""
    pytester.makeini("[pytest]\nmarkers =\n    long(why, mode): long\n")
    pytester.makeconftest(CONFTEST)
    more = "@both\ndef test_more(enforced_by): ..."
    pytester.makepyfile(test_a=LIVE, test_b=LIVE + more, test_c="def test_pure(): ...")
    return pytester


def collected(tests: pytest.Pytester, *args: str) -> list[str]:
    output = tests.runpytest("--collect-only", "-q", "-p", "no:xdist", *args)
    return [line for line in output.outlines if "::" in line and " " not in line]


def test_short_and_long_run_are_everything_and_share_nothing(tests):
    short, long = collected(tests, "--run", "short"), collected(tests, "--run", "long")
    assert sorted(short + long) == sorted(collected(tests))
    assert "test_a.py::test_long_with_slots[select]" in short
    assert "test_a.py::test_long_with_slots[slots]" in long
    assert {name for name in long if "test_long[" in name} == {
        f"test_{file}.py::test_long[{mode}]" for file in "ab" for mode in ("select", "slots")
    }


def test_tests_without_a_cluster_come_first_then_mode_by_mode_large_files_first(tests):
    files = list(dict.fromkeys((name[:9], name.endswith("[slots]")) for name in collected(tests)))
    assert files == [
        ("test_c.py", False),
        ("test_b.py", False),
        ("test_a.py", False),
        ("test_b.py", True),
        ("test_a.py", True),
    ]


def test_shards_are_everything_and_share_nothing(tests):
    parts = [collected(tests, "--shard", f"{number}/2") for number in (1, 2)]
    assert all(parts)
    assert sorted(parts[0] + parts[1]) == sorted(collected(tests))


@pytest.mark.parametrize("shard", ["3/2", "1", "a/b"])
def test_a_bad_shard_is_refused_in_one_line(tests, shard):
    output = tests.runpytest(f"--shard={shard}", "-p", "no:xdist")
    assert any(f"--shard {shard}: expected K/N" in line for line in output.errlines)


def test_the_reason_of_each_long_test_is_told(tests):
    output = tests.runpytest("--collect-only", "-q", "-p", "no:xdist", "--run", "long")
    assert "test_a.py::test_long[select]: why" in output.outlines
