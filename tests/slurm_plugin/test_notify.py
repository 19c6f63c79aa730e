"""What systemd hears."""

import os
import socket

import pytest

from slurm_plugin.notify import Notifier


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
