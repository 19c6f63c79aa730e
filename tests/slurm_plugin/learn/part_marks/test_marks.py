"""The file of marks, and the commands that write it."""

import fcntl
import json
import os
import threading

import pytest
from click.testing import CliRunner
from machines_in_tests import named

from slurm_plugin.cli import cli
from slurm_plugin.errors import PluginError
from slurm_plugin.learn.part_marks import marks
from slurm_plugin.learn.part_marks.marks import Mark, change, read

GOOD = {"node": "dgx7", "part": "link 2-3", "state": "degraded", "share": 0.5}
HOSTILE = [
    ("no JSON", b"{", "Input data was truncated"),
    ("a list", b"[]", "Expected `object`"),
    ("an unknown key", {**GOOD, "colour": 1}, "unknown field `colour`"),
    ("no part", {"node": "n", "state": "broken"}, "missing required field `part`"),
    ("a share of more", {**GOOD, "share": 1.5}, "Expected `float` < 1.0 - at `$.share`"),
    ("a share of nothing", {**GOOD, "share": 0}, "Expected `float` > 0.0"),
    ("a share that is no number", {**GOOD, "share": "half"}, "Expected `float | null`"),
    ("no share", {**GOOD, "share": None}, "link 2-3 is degraded; expected its share"),
    ("another state", {**GOOD, "state": "tired"}, "link 2-3 is 'tired'; expected no power: broken"),
    ("a GPU that is capped", {**GOOD, "state": "capped"}, "expected no power"),
    ("power that is broken", {**GOOD, "part": "power", "state": "broken"}, "expected a cap"),
    ("a cap without watts", {"node": "n", "part": "power", "state": "capped"}, "expected watts"),
    ("no cap", {"node": "n", "part": "power", "state": "capped", "watts": 9, "of_watts": 9},
     "9 of 9 watts; expected a cap"),
    ("another part", {**GOOD, "part": "fan 3"}, "part 'fan 3'; expected `gpu 3`"),
    ("a part with more behind it", {**GOOD, "part": "gpu 3\n"}, "expected `gpu 3`"),
    ("the higher GPU first", {**GOOD, "part": "link 3-2"}, "the lower one first"),
    ("a GPU and itself", {**GOOD, "part": "link 3-3"}, "the lower one first"),
    ("a name that no node has", {**GOOD, "node": "a b\x1b"}, "matching regex"),
    ("words without end", {**GOOD, "why": "x" * 201}, "length <= 200"),
    ("nested beyond reason", b'{"node":' + b"[" * 100_000, "got `array`"),
    ("not UTF-8", b'{"node": "\xff"}', "utf-8"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "words"), named(HOSTILE))
def test_a_hostile_line_is_one_clear_error_with_its_number(tmp_path, line, words):
    path = tmp_path / "marks.jsonl"
    bad = line if isinstance(line, bytes) else json.dumps(line).encode()
    first = json.dumps({**GOOD, "node": "first"}).encode()
    path.write_bytes(first + b"\n\n" + bad + b"\n")
    with pytest.raises(PluginError) as refused:
        read(path)
    text = str(refused.value)
    assert text.startswith(f"{path}:3: ")
    assert words.lower() in text.lower()
    assert text.isprintable()
    assert len(text) < 600


def test_a_part_twice_a_file_too_large_and_too_many_lines(tmp_path):
    path = tmp_path / "marks.jsonl"
    line = json.dumps(GOOD) + "\n"
    path.write_text(2 * line)
    with pytest.raises(PluginError, match=r"marks\.jsonl:2: dgx7 link 2-3 is marked twice"):
        read(path)
    path.write_bytes(b"\n" * (marks.MOST_MARKS + 1))
    with pytest.raises(PluginError, match="20001 lines; expected at most 20000"):
        read(path)
    path.write_bytes(b" " * (marks.MAX_BYTES + 1))
    with pytest.raises(PluginError, match="more than 8 MiB"):
        read(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(PluginError, match="expected a plain file"):
        read(path)


def test_a_change_replaces_marks_of_the_same_part_and_keeps_owner_and_mode(tmp_path):
    path = tmp_path / "state" / "marks.jsonl"
    change(path, lambda mark: False, [Mark("a", "gpu 1", "broken"), Mark("b", "gpu 1", "broken")])
    path.chmod(0o600)
    gone = change(path, lambda mark: mark.node == "b", [Mark("a", "gpu 1", "degraded", 0.25)])
    assert [(mark.node, mark.state) for mark in gone] == [("a", "broken"), ("b", "broken")]
    assert read(path) == {"a": (Mark("a", "gpu 1", "degraded", 0.25),)}
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in path.parent.iterdir()] == ["marks.jsonl"]


def test_a_damaged_file_is_not_written_over(tmp_path):
    path = tmp_path / "marks.jsonl"
    path.write_text("{\n")
    with pytest.raises(PluginError):
        change(path, lambda mark: True, [Mark("a", "gpu 1", "broken")])
    assert path.read_text() == "{\n"


def test_two_commands_at_once_lose_no_mark(tmp_path):
    path = tmp_path / "marks.jsonl"

    def mark_many(node):
        for gpu in range(16):
            change(path, lambda mark: False, [Mark(node, f"gpu {gpu}", "broken")])

    threads = [threading.Thread(target=mark_many, args=(node,)) for node in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {node: len(parts) for node, parts in read(path).items()} == dict.fromkeys("abcd", 16)


def test_a_lock_that_somebody_keeps_is_told(tmp_path, monkeypatch):
    """Who may read the folder may lock it, for as long as they like."""
    monkeypatch.setattr(marks, "LONGEST_WAIT_S", 0.1)
    keeper = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(keeper, fcntl.LOCK_EX)
        with pytest.raises(PluginError, match=r"marks.jsonl: another command has had its folder"):
            change(tmp_path / "marks.jsonl", lambda mark: True)
    finally:
        os.close(keeper)
    assert change(tmp_path / "marks.jsonl", lambda mark: True) == []


@pytest.fixture
def run(tmp_path):
    config = tmp_path / "gputopo.yaml"
    config.write_text(f"state_dir: {tmp_path}\nnodes:\n- {{nodes: 'dgx[1-9]', topology: dgx1v}}\n")

    def command(*words, text=None):
        sub, *rest = words
        options = ["topology", sub, "--config", str(config), *rest]
        done = CliRunner().invoke(cli, options, input=text)
        return done.exit_code, done.output

    return command


def test_mark_list_and_unmark(run):
    assert run("marks") == (0, "nothing is marked\n")
    assert run("mark", "dgx7", "link", "2-3", "degraded") == (
        0,
        "dgx7: link 2-3 degraded to 50 %\n",
    )
    run("mark", "dgx7", "gpu", "5", "broken", "--reason", "Xid 79")
    said = run("mark", "dgx2", "power", "1800/2400", "--share", "0.9")[1]
    assert said == "dgx2: power capped at 1800 of 2400 W, delivers 90 %\n"
    listed = run("marks")[1].splitlines()
    assert [line.partition("  since")[0] for line in listed] == [
        "dgx2  power capped at 1800 of 2400 W, delivers 90 %",
        "dgx7  gpu 5 broken",
        "dgx7  link 2-3 degraded to 50 %",
    ]
    assert listed[1].endswith(": Xid 79")
    rows = json.loads(run("marks", "--json")[1])
    assert rows[0]["share"] == 0.9
    assert run("unmark", "dgx7", "gpu", "5") == (0, "dgx7: gpu 5 is no longer marked\n")
    assert run("unmark", "dgx7") == (0, "dgx7: link 2-3 is no longer marked\n")
    assert run("unmark", "dgx7") == (1, "dgx7: nothing is marked\n")


WRONG = [
    ("no node of the file", ("mark", "other", "gpu", "1", "broken"), "not declared"),
    ("a GPU there is not", ("mark", "dgx1", "gpu", "8", "broken"), "has no GPU 8"),
    ("another state", ("mark", "dgx1", "gpu", "1", "tired"), "expected no power: broken"),
    (
        "broken with a share",
        ("mark", "dgx1", "gpu", "1", "broken", "--share", "0.5"),
        "a broken part delivers nothing",
    ),
    ("watts that are none", ("mark", "dgx1", "power", "much"), "expected WATTS/WATTS"),
    ("more than it takes", ("mark", "dgx1", "power", "400/300"), "400 of 300 watts"),
    ("a share of everything", ("mark", "dgx1", "gpu", "1", "degraded", "--share", "1"), "0<x<1"),
    ("nothing", ("mark", "dgx1"), "expected a part"),
    ("both", ("mark", "dgx1", "gpu", "1", "broken", "--from", "-"), "expected a part"),
]


@pytest.mark.parametrize(("words", "said"), named(WRONG))
def test_wrong_marks_are_refused_in_one_line(run, words, said):
    code, output = run(*words, text="")
    assert code == 2
    assert said in output
    assert output.count("\n") == 1
    assert run("marks")[1] == "nothing is marked\n"


@pytest.mark.parametrize("text", ["GPU 0: \xae", "GPU 0: x\n"])
@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_report_in_another_encoding_is_refused_in_one_line(run, tmp_path, text, encoding):
    (tmp_path / "report").write_bytes(text.encode(encoding))
    code, output = run("mark", "dgx1", "--from", str(tmp_path / "report"))
    assert (code, output.count("\n")) == (2, 1)


def test_a_report_makes_and_takes_its_own_marks_alone(run):
    lines = [f"GPU {gpu}: Tesla V100\n" + 6 * " Link 0: 25.781 GB/s\n" for gpu in range(8)]
    whole = "".join(lines)
    dark = [line.replace("25.781 GB/s", "<inactive>", 1) for line in lines]
    cut = "".join(dark[gpu] if gpu in (0, 3) else line for gpu, line in enumerate(lines))
    run("mark", "dgx1", "gpu", "5", "broken")
    said = run("mark", "dgx1", "--from", "-", text=cut)
    assert said == (0, "dgx1: link 0-3 degraded to 50 % (1 NVLinks inactive)\n")
    assert run("mark", "dgx1", "--from", "-", text=cut)[1] == said[1], "again is the same"
    again = run("mark", "dgx1", "--from", "-", text=whole)
    assert again == (0, "dgx1: link 0-3 is no longer marked\n")
    assert run("mark", "dgx1", "--from", "-", text=whole) == (0, "dgx1: nothing to mark\n")
    assert "gpu 5 broken" in run("marks")[1], "one made by hand stays"
    # Nor does a report soften it.
    alone = "".join(dark[gpu] if gpu == 5 else line for gpu, line in enumerate(lines))
    assert run("mark", "dgx1", "--from", "-", text=alone) == (0, "dgx1: nothing to mark\n")


def test_a_report_that_says_nothing_of_a_gpu_takes_none_of_its_marks(run):
    ports = "".join(f"\t Link {port}: 25 GB/s\n" for port in range(6))
    whole = "".join(f"GPU {gpu}: x\n{ports}" for gpu in range(8))
    no_link = "NVML: Unable to retrieve NVLink information as all links are inActive\n"
    dark = whole.replace(f"GPU 2: x\n{ports}", f"GPU 2: x\n{no_link}")
    marked = "dgx1: gpu 2 broken (all NVLinks inactive)\n"
    assert run("mark", "dgx1", "--from", "-", text=dark) == (0, marked)
    silent = dark.replace(no_link, "")
    said = run("mark", "dgx1", "--from", "-", text=silent)[1]
    assert said.startswith("dgx1: too little is said of GPU 2: marks there stay\n")
    assert "gpu 2 broken" in run("marks")[1]
    assert "no longer" in run("mark", "dgx1", "--from", "-", text=whole)[1]


def test_a_report_of_power_limits(run):
    text = "index, power.limit [W], power.default_limit [W]\n0, 200.00 W, 400.00 W\n"
    said = run("mark", "dgx1", "--from", "-", text=text)[1]
    assert said == "dgx1: power capped at 200 of 400 W (power limits of 200 of 400 W)\n"


def test_no_mark_commands_a_terminal(run, tmp_path):
    """The file is the engine's, and a report comes from a node."""
    escape = "\x1b]0;mine\x07\nb"
    mark = Mark("dgx1", "gpu 1", "broken", by=escape, why=escape, source=escape)
    change(tmp_path / "marks.jsonl", lambda mark: False, [mark])
    said = run("mark", "dgx1", "gpu", "2", "broken", "--reason", escape)[1] + run("marks")[1]
    assert "?]0;mine??b" in said
    assert len(said.splitlines()) == 3
    assert all(line.isprintable() for line in said.splitlines())
