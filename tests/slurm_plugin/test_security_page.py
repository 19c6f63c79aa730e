"""SECURITY.md's table of interfaces says what the code allows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slurm_plugin.act.lending.acting import question
from slurm_plugin.act.lending.acting import serve as donors
from slurm_plugin.base import client, port, protocol
from slurm_plugin.node.remote import door, handshake, strangers
from slurm_plugin.serve import charge, server
from slurm_plugin.tell.explain import listener
from slurm_plugin.tell.web import reasons, run
from slurm_plugin.tell.web.clients import guard, turns, waiting
from slurm_plugin.tell.web.utilisation import prometheus, shown

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
ROWS = {row.split("|")[1].strip(): row for row in PAGE.splitlines() if row.startswith("| ")}
WORDS = {2: "two", 4: "four", 5: "five", 20: "twenty"}


def row(start: str) -> str:
    """The row of the interface whose name begins so."""
    [found] = [row for name, row in ROWS.items() if name.startswith(start)]
    return found


def of_lua(module: str, name: str) -> int:
    """A number that a module of the bridge names."""
    text = (ROOT / "lua_bridge" / "gputopo" / f"{module}.lua").read_text(encoding="utf-8")
    found = re.search(rf"^local {name} = (\S+)$", text, re.M)
    assert found, f"{module}.lua: no {name}"
    return int(float(found[1]))


def deadline_ms() -> int:
    text = (ROOT / "lua_bridge" / "gputopo" / "config.lua").read_text(encoding="utf-8")
    found = re.search(r"^  deadline_ms = \{ default = (\d+)", text, re.M)
    assert found
    return int(found[1])


PLACES = f"{port.REQUEST_S:g} s, {port.MAX_OPEN} connections, {port.MAX_OF_ONE} of one address"


@pytest.mark.parametrize(
    ("start", "phrases"),
    [
        (
            "sbatch's options",
            [
                f"hints of {of_lua('hint', 'LONGEST'):,} bytes",
                f"cut at {of_lua('request', 'LONGEST_NAME')} bytes",
                f"beyond {of_lua('slots_submit', 'LONGEST_TEXT'):,}",
                f"at most {len(str(of_lua('codec', 'LARGEST_NUMBER'))) - 1} digits",
                f"({deadline_ms()} ms)",
            ],
        ),
        (
            "`/run/gputopo/engine.sock`",
            [
                f"lines of {protocol.MAX_REQUEST_BYTES >> 20} MiB",
                f"engine.sock`, {server.SOCKET_MODE:04o}",
                f"{server.MAX_CONNECTIONS} connections",
                f"after {server.HALF_LINE_S:g} s",
            ],
        ),
        (
            "`/run/gputopo/engine.sock.status`",
            [f"status`, {client.STATUS_MODE:04o}", f"every {client.WRITE_S:g} s"],
        ),
        (
            "`/run/gputopo-donors/socket`",
            [
                f"one line of {question.MAX_BYTES} bytes",
                f"{donors.PEER_S:g} s",
                f"{WORDS[round(1 / donors.PAUSE_S)]} donors a second",
            ],
        ),
        (
            "`explain_listen`",
            [
                f"{WORDS[round(listener.RATE)]} questions a second",
                PLACES,
            ],
        ),
        ("`metrics_listen`", [PLACES]),
        (
            "`gputopo web`",
            [
                f"heads of {round(run.MAX_FIELD / 1024)} KiB",
                f"of {round(run.MAX_BYTES / 1024)} KiB in all",
                f"{guard.MAX_CONNECTIONS:,} connections, {guard.MAX_OF_ONE} of one user",
                f"{guard.IDLE_S:g} s without a request",
                f"{guard.MAX_STREAMS_OF_ONE} live pages",
                f"{reasons.MAX_OF_ONE:,} jobs of one user are listed, {reasons.MAX_LISTED:,} to",
                f"{waiting.MAX_OF_ONE >> 20} MiB of those who see the same",
                f"{waiting.MAX_IN_ALL >> 20} MiB in all",
                f"at a time of one user, {WORDS[turns.MAX_LOOKS]} of all",
            ],
        ),
        (
            "the site's Prometheus",
            [
                f"one query every {prometheus.EVERY_S:g} s",
                f"{prometheus.DEADLINE_S:g} s and {prometheus.MAX_REPLY >> 20} MiB",
                f"for {shown.OLDEST_S:g} s at least",
            ],
        ),
        (
            "a donor's port",
            [
                f"{handshake.HANDSHAKE_S:g} s, {strangers.PER_SOURCE} connections per address",
                f"{strangers.IN_ALL} in all",
            ],
        ),
        ("`heartbeat` in StateSaveLocation", [f"{charge._HEARTBEAT.size + 1} bytes at most"]),
        ("abstract Unix sockets", [f"question of 256 bytes, {door.QUESTION_S:g} s"]),
    ],
)
def test_a_number_on_the_page_is_the_codes(start, phrases):
    for phrase in phrases:
        assert phrase in row(start)


def test_hints_and_their_answers_have_room_in_a_line():
    """What the bridge lets through the engine takes."""
    assert of_lua("hint", "LONGEST") <= protocol.MAX_HINT_BYTES < protocol.MAX_REQUEST_BYTES


def test_two_questions_of_one_user_at_a_time():
    assert row("`gputopo web`").count(f"{WORDS[turns.MAX_OF_ONE].capitalize()} questions") == 1
