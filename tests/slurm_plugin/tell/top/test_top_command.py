"""`gputopo top` on a terminal: it shows, obeys keys, and leaves the terminal as it was."""

import subprocess

import pytest
from terminal_in_tests import GPUTOPO, ROOT, Terminal

#: What a terminal gets to show another screen, and its own one again with the cursor.
ENTER, LEAVE, CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


@pytest.mark.parametrize("key", ["q", "\x1b"])
def test_it_shows_the_site_until_a_key_is_pressed(key):
    terminal = Terminal("top", "--demo")
    terminal.read_until("Waiting: ")
    terminal.type("jjn k")
    terminal.read_until("q quit")
    terminal.type(key)
    assert terminal.end() == 0
    assert terminal.text.index(ENTER) < terminal.text.index(LEAVE)
    assert CURSOR in terminal.text.rpartition(LEAVE)[0] + terminal.text.rpartition(LEAVE)[2]
    assert "Traceback" not in terminal.text


def test_ctrl_c_ends_it_as_q_does():
    terminal = Terminal("top", "--demo")
    terminal.read_until("Waiting: ")
    terminal.interrupt()
    assert terminal.end() == 0
    assert LEAVE in terminal.text


def test_without_a_terminal_it_prints_once():
    environment = {"PYTHONPATH": str(ROOT)}
    argv = [*GPUTOPO, "top", "--demo"]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "-- Nodes --" in done.stdout
    assert "\x1b" not in done.stdout
    assert "q quit" not in done.stdout


def test_a_slurm_that_does_not_answer_is_one_line(tmp_path):
    done = subprocess.run(
        [*GPUTOPO, "top", "--config", str(tmp_path / "none.yaml")],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": str(tmp_path)},
        timeout=60,
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
