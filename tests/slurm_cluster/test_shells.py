"""Commands in containers, with a `docker` that is a script."""

import pytest

from slurm_cluster import hosts, shells
from slurm_cluster.hosts import ClusterError, CommandResult, Hosts
from slurm_cluster.shells import Shells

#: Hangs the first time; then answers every command.
DOCKER = """#!/bin/sh
if mkdir {folder}/seen 2>/dev/null; then exec sleep 60; fi
while read -r command; do echo '[0, "there", ""]'; done
"""


class OneHost(Hosts):
    """A host without Docker's own library."""

    def __init__(self) -> None:
        self._shells = Shells(lambda host: host)


def test_a_host_that_hangs_is_an_error_and_then_asked_anew(tmp_path, monkeypatch):
    (tmp_path / "docker").write_text(DOCKER.format(folder=tmp_path))
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(hosts, "GRACE_S", 0.0)
    cluster = OneHost()
    with pytest.raises(ClusterError, match=r"root@ctl: sinfo -N: no answer within 0.2 s; the cont"):
        cluster.run("ctl", ["sinfo", "-N"], timeout_s=0.2)
    assert cluster.run("ctl", "true") == CommandResult(0, "there", "")
    assert cluster.run("ctl", "true") == CommandResult(0, "there", "")


#: Answers each command with how many there were.
COUNTS = """#!/bin/sh
n=0
while read -r command; do n=$((n + 1)); echo "[0, \\"$n\\", \\"\\"]"; done
"""


def test_no_command_gets_the_reply_of_one_that_was_broken_off(tmp_path, monkeypatch):
    """As by the signal that ends a test whose time is over."""

    def is_over(*_: object) -> bytes:
        raise KeyboardInterrupt

    (tmp_path / "docker").write_text(COUNTS)
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    cluster = OneHost()
    assert cluster.run("ctl", "true").out == "1"
    with monkeypatch.context() as patched:
        patched.setattr(shells, "_line", is_over)
        with pytest.raises(KeyboardInterrupt):
            cluster.run("ctl", "true")
    assert cluster.run("ctl", "true").out == "1"
