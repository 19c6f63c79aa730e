"""What systemd hears, and is told."""

import os
import socket
from pathlib import Path

import pytest

import slurm_plugin
from slurm_plugin.base.notify import Notifier


def test_systemd_hears_every_state(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(2)
        notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify")})
        notifier.ready("5 nodes")
        notifier.reloading()
        notifier.alive()
        notifier.stopping()
        heard = [systemd.recv(1000).decode() for _ in range(4)]
    assert heard[0] == "READY=1\nSTATUS=5 nodes"
    assert heard[1].startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert heard[2:] == ["WATCHDOG=1", "STOPPING=1"]


def test_without_systemd_or_its_socket_nothing_happens(tmp_path):
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).alive()
    notifier = Notifier({})
    notifier.ready("")
    assert notifier.watchdog_s is None


@pytest.mark.parametrize(
    ("pid", "expected"), [(str(os.getpid()), 10.0), ("1", None)], ids=["ours", "another's"]
)
def test_the_watchdog_is_fed_only_for_the_process_it_is_meant_for(pid, expected):
    environment = {"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": pid}
    assert Notifier(environment).watchdog_s == expected


@pytest.mark.parametrize("name", ["gputopo", "gputopo-donors"])
def test_the_unit_of_one_cluster_among_several_may_do_no_more(name):
    """They differ in what is the cluster's own."""
    own = ("#", "Description=", "Before=", "ExecStart=", "RuntimeDirectory=", "StateDirectory=")
    own += ("ExecReload=/usr/bin/env", "LogsDirectory=", "Environment=SLURM_CONF=")
    folder = Path(slurm_plugin.__file__).parent / "serve" / "systemd"
    usual, of_one = (
        [line for line in text.splitlines() if not line.startswith(own)]
        for text in ((folder / f"{name}{at}.service").read_text() for at in ("", "@"))
    )
    assert usual == of_one
    text = (folder / f"{name}@.service").read_text()
    for line in text.splitlines():
        assert "gputopo" not in line.partition("=")[2] or "%i" in line, line


UNITS = sorted((Path(slurm_plugin.__file__).parent / "serve" / "systemd").glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_never_gives_up_and_waits_longer_where_it_can(unit):
    """With a limit an engine that a full disk kept from starting would stay stopped."""
    head, service = unit.read_text().split("[Service]")
    assert "\nStartLimitIntervalSec=0\n" in head
    lines = service.splitlines()
    for line in ("Restart=always", "RestartSec=1s", "RestartSteps=5", "RestartMaxDelaySec=5s"):
        assert lines.count(line) == 1


@pytest.mark.parametrize("unit", ["gputopo.service", "gputopo@.service"])
def test_a_reload_asks_first_whether_the_engine_would_load_the_file(unit):
    """systemd runs the lines in turn, as the unit's user, and fails at the first that fails."""
    lines = next(path for path in UNITS if path.name == unit).read_text().splitlines()
    [started] = [line for line in lines if line.startswith("ExecStart=")]
    file = started.rpartition(" --config ")[2]
    assert [line for line in lines if line.startswith("ExecReload=")] == [
        f"ExecReload=/usr/bin/env gputopo config check {file}",
        "ExecReload=/bin/kill -HUP $MAINPID",
    ]
