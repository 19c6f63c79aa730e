"""Which tests the short and the long run take, and in which order."""

import json
from pathlib import Path

import eighths
import pytest
from eighths import COUNT, LongRun

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


def eighth(tests: pytest.Pytester, number: int) -> list[str]:
    return collected(tests, "--run", "long", "--eighth", str(number))


def test_eighths_are_the_long_run_and_share_nothing(tests):
    parts = [name for number in range(1, COUNT + 1) for name in eighth(tests, number)]
    assert sorted(parts) == sorted(collected(tests, "--run", "long"))


def test_a_group_is_in_the_eighth_that_is_written_and_the_longest_is_first(tests, known):
    for seconds, name in enumerate(("test_a.py select", "test_b.py select", "test_b.py slots")):
        known.groups[name] = {"eighth": 3, "seconds": seconds}
    known.write()
    assert list(dict.fromkeys(map(eighths.group_of, eighth(tests, 3))))[:3] == [
        "test_b.py slots",
        "test_b.py select",
        "test_a.py select",
    ]


def test_in_files_that_take_long_each_test_is_a_group():
    here = Path(__file__).parent
    for path in eighths.BY_TEST:
        assert (here.parent / path).exists()
        assert eighths.group_of(f"{path}::test_a[select-one of two]").endswith("-one of two]")
    name = "tests/cluster/faults/test_clocks.py::test_a[slots-a b]"
    known = LongRun()
    known.groups = {name: {"eighth": 1, "seconds": 1}}
    known.deal()
    assert list(known.groups) == [name]


def test_a_long_file_is_dealt_out_in_parts_that_go_by_the_names_of_its_tests_alone(known):
    here = Path(__file__).parent
    names = [f"test_a[{case}-slots]" for case in range(50)]
    for path, parts in eighths.PARTS.items():
        assert (here.parent / path).exists()
        assert path not in eighths.BY_TEST
        groups = {eighths.group_of(f"{path}::{name}") for name in names}
        assert groups == {f"{path} slots part {k + 1}" for k in range(parts)}
        known.groups[f"{path} slots"] = {"eighth": 1, "seconds": 100}
    known.deal()
    assert len(known.groups) == sum(eighths.PARTS.values())
    assert {found["seconds"] for found in known.groups.values()} <= {33, 50}
    whole = dict(known.groups)
    known.deal()
    assert known.groups.keys() == whole.keys()


@pytest.fixture
def known(tmp_path, monkeypatch) -> LongRun:
    """What is known of a long run, in place of the project's own."""
    monkeypatch.setattr(eighths, "FILE", tmp_path / "long_run.json")
    return LongRun()


def test_dealt_out_anew_eighths_are_of_like_length_and_files_that_are_gone_are_left_out(known):
    here = Path(__file__).parent
    files = sorted((here / "slurm_plugin").rglob("test_*.py"))[:30]
    for seconds, file in enumerate(files):
        name = str(file.relative_to(here.parent))
        known.groups[name] = {"eighth": 1, "seconds": seconds}
    known.groups["tests/test_gone.py"] = {"eighth": 2, "seconds": 10}
    known.deal()
    sums = dict.fromkeys(range(1, COUNT + 1), 0)
    for found in known.groups.values():
        sums[found["eighth"]] += found["seconds"]
    assert len(known.groups) == len(files)
    assert max(sums.values()) - min(sums.values()) <= 4


def test_a_run_of_an_eighth_writes_its_result_and_the_seconds_of_its_groups(tests, known):
    tests.makepyfile(
        test_a="import pytest\n"
        "@pytest.mark.long('why')\ndef test_wrong(): assert False\n"
        "@pytest.mark.long('why')\ndef test_right(): ...\n"
        "@pytest.mark.long('why')\ndef test_left(): pytest.skip('no reason')"
    )
    tests.makeini("[pytest]\ntestpaths = .\nmarkers =\n    long(why, mode): long\n")
    known.groups = {
        "test_a.py": {"eighth": 5, "seconds": 99},
        "test_renamed.py": {"eighth": 5, "seconds": 1},
        "test_b.py slots": {"eighth": 4, "seconds": 2},
    }
    known.write()
    output = tests.runpytest("--run", "long", "--eighth", "5", "-p", "no:xdist")
    said = json.loads(eighths.FILE.read_text())
    assert said["groups"] == {
        "test_a.py": {"eighth": 5, "seconds": 0},
        "test_b.py slots": {"eighth": 4, "seconds": 2},
    }
    assert {how: said["eighths"]["5"][how] for how in ("passed", "failed", "skipped")} == {
        "passed": 1,
        "failed": 1,
        "skipped": 1,
    }
    output.stdout.fnmatch_lines(["5/8  * on *: 1 passed, 1 failed, 1 skipped, 0:0* min"])
    output.stdout.fnmatch_lines(["8/8  never ran"])


def test_a_run_of_some_tests_of_an_eighth_writes_nothing(tests, known):
    tests.runpytest("--run", "long", "--eighth", "5", "-p", "no:xdist", "test_a.py")
    assert not eighths.FILE.exists()


def test_the_reason_of_each_long_test_is_told(tests):
    output = tests.runpytest("--collect-only", "-q", "-p", "no:xdist", "--run", "long")
    assert "test_a.py::test_long[select]: why" in output.outlines
