"""Commands in containers, with a `docker` that is a script."""

import pytest

from slurm_cluster import hosts
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
