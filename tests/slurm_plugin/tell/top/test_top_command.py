"""`gputopo top` on a terminal: it shows, obeys keys, and leaves the terminal as it was."""

import io
import os
import subprocess

import pytest
from rich.console import Console
from rich.live import Live
from terminal_in_tests import GPUTOPO, ROOT, Terminal

from slurm_plugin.tell.top.terminal import Top
from slurm_plugin.tell.web import demo

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


@pytest.mark.parametrize(
    ("sentence", "pressed", "moved", "ends"),
    [
        ("one arrow", "\x1b[B", (0, 1), False),
        ("arrows that came together", "\x1b[B\x1b[B\x1b[B\x1b[A", (0, 2), False),
        ("arrows among letters", "jn\x1b[Bk\x1b[6~", (1, 11), False),
        ("more arrows than a line has places", "\x1b[B" * 40, (0, 40), False),
        ("keys that mean nothing here", "\x1bOB\x1bj\x1b[1;5Bx\x1b\x1b[A", (0, 0), False),
        ("q after an arrow", "\x1b[Bq\x1b[B", (0, 1), True),
        ("Escape after a letter", "j\x1b", (0, 1), True),
        ("Escape", "\x1b", (0, 0), True),
        ("the terminal is gone", "", (0, 0), True),
    ],
)
def test_every_key_of_one_reading_counts(sentence, pressed, moved, ends):
    console = Console(file=io.StringIO())
    top = Top(demo.sources(), None, console)
    read, write = os.pipe()
    try:
        os.write(write, pressed.encode())
        os.close(write)
        top._on_key(read, Live(console=console))
    finally:
        os.close(read)
    assert (top._reader.nodes, top._reader.jobs) == moved
    assert top._ended.is_set() == ends
