"""What takes long shows how long it will take, on a terminal alone, and ends cleanly by Ctrl-C."""

import re
import subprocess
import tempfile
from pathlib import Path

import pytest
from terminal_in_tests import GPUTOPO, ROOT, Terminal

NODES = "nodes:\n  - {nodes: 'd[1-8]', topology: dgx1v}\n"


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A simulation that takes about a second."""
    rows = "".join(f"{at},{at},{900 + at % 97},{1 + at % 5}\n" for at in range(200))
    (tmp_path / "log.csv").write_text(f"job_id,submit_s,duration_s,gpus\n{rows}")
    (tmp_path / "cluster.yaml").write_text(NODES)
    files = ["--trace", str(tmp_path / "log.csv"), "--cluster", str(tmp_path / "cluster.yaml")]
    return ["simulate", *files, "--csv", str(tmp_path / "out.csv")]


def test_a_bar_says_the_time_left_and_is_gone_at_the_end(words):
    terminal = Terminal(*words)
    terminal.read_until("% ")
    terminal.read_until(" left")
    assert terminal.end() == 0
    assert re.search(r"\d:\d\d:\d\d left", terminal.text)
    shown = terminal.text.rpartition("\x1b[2K")[2]  # what is left after the last line was wiped
    assert " left\r" not in shown
    assert "%\x1b" not in shown
    assert "200 jobs on 8 nodes" in shown


def test_nothing_of_the_bar_is_in_what_another_program_reads(words):
    with tempfile.TemporaryFile() as file:
        terminal = Terminal(*words, stdout=file.fileno())
        terminal.read_until(" left")
        assert terminal.end() == 0
        file.seek(0)
        text = file.read().decode()
    assert text.startswith("200 jobs on 8 nodes")
    assert "\x1b" not in text
    assert "200 jobs on 8 nodes" not in terminal.text


def test_without_a_terminal_nothing_is_said_of_progress(words):
    environment = {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([*GPUTOPO, *words], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, f"wrote {words[-1]}\n")
    assert "left" not in done.stdout.split()


def test_ctrl_c_is_one_line_and_leaves_no_file(words):
    terminal = Terminal(*words)
    terminal.read_until("%")
    terminal.interrupt()
    assert terminal.end() == 130
    *_, last = terminal.text.split()
    assert last == "interrupted"
    assert "Traceback" not in terminal.text
    assert "\x1b[?25h" in terminal.text  # the cursor is back
    assert not Path(words[-1]).exists()
