"""An installation made in a directory, with a Slurm that answers what a test wants."""

import os
import socket
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from machines_in_tests import BASIC

from gres_topology.slurm_files.network import Networks
from slurm_plugin.doctor import Finding, examine
from slurm_plugin.doctor.installation import Installation
from slurm_plugin.slurm.clients import scontrol_tables
from slurm_plugin.slurm.interface import QueuedJob, SlurmNode, SlurmPartition


def plugin_file(path: Path, version: tuple[int, int, int]) -> Path:
    """What there is of our select plugin for who does not load it."""
    number = struct.pack("=I", version[0] << 16 | version[1] << 8 | version[2])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x7fELF gputopo-version\0" + number)
    return path


class FakeSlurm:
    """Slurm as the doctor asks it; attributes are changed by the tests."""

    def __init__(self, folder: Path) -> None:
        def node(name: str, gpus: int) -> SlurmNode:
            return SlurmNode(name, ("IDLE",), ("gpu",), 1, 16, 4000, {"v100": gpus})

        names = ("dgx1", "dgx2", "dgx3", "mirrored")
        self.all_nodes = [*(node(name, 8) for name in names), node("minsky1", 4)]
        self.all_jobs: list[QueuedJob] = []
        self.values = {
            "SLURM_VERSION": "24.11.5",
            "SLURM_CONF": str(folder / "slurm" / "slurm.conf"),
            "SlurmUser": f"slurm({os.getuid()})",
            "SelectType": "select/cons_tres",
            "JobSubmitPlugins": "lua",
            "PluginDir": f"{folder}/ours:{folder}/stock",
        }

        parts = [SlurmPartition(p, (), False) for p in ("watched", "quiet", "plain", "picky")]
        self.version = lambda: self.values["SLURM_VERSION"]
        self.nodes = lambda: self.all_nodes
        self.queue = lambda: self.all_jobs
        self.config = lambda: self.values
        self.partitions = lambda: parts
        #: What `scontrol show topology` prints.
        self.topology = ""

    def networks(self) -> Networks:
        return scontrol_tables.networks(lambda argv: self.topology, ())


class PlayedSite:
    """One installation in a directory; all is well until a test breaks something."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.slurm = FakeSlurm(folder)
        #: slurm.conf; None for what slurmctld runs with.
        self.conf: str | None = None
        self.config = folder / "gputopo.yaml"
        self.config.write_text(BASIC.format(folder=folder))
        (folder / "slurm").mkdir()
        self.bridge = folder / "slurm" / "gputopo-bridge.conf"
        self.script = folder / "slurm" / "job_submit.lua"
        self.script.write_text(
            "-- slurm-gputopo: the script slurmctld loads (JobSubmitPlugins=lua)\n"
            'require("gputopo.bridge")'
        )
        plugin_file(folder / "ours" / "select_cons_tres.so", (24, 11, 5))
        (folder / "stock").mkdir()
        (folder / "stock" / "select_cons_tres.so").write_bytes(b"\x7fELF plugin_version\0")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(folder / "engine.sock"))
        (folder / "engine.sock").chmod(0o600)
        listener.close()
        self.status: dict[str, Any] = {
            "config": str(self.config),
            "enforcement": "select",
            "killed": False,
            "uptime_s": 600.0,
            "decisions_lost": 0,
            "messages": {},
            "charge": {
                "is_ours": True,
                "is_doubtful": False,
                "why": "there is no other controller",
                "since_s": 600.0,
                "controllers": ["ctl"],
            },
        }
        monkeypatch.setattr("slurm_plugin.base.client.status", lambda path: self.status)
        #: The processes of this host.
        self.proc = self.folder / "proc"
        monkeypatch.setattr("slurm_plugin.doctor.slurm_files.PROC", self.proc)
        # The folder of a test is its own user's alone.
        monkeypatch.setattr(
            "slurm_plugin.doctor.engine.may_read", lambda path, _: path.stat().st_mode & 0o004
        )

    def findings(self) -> list[Finding]:
        keys = ("PluginDir", "JobSubmitPlugins")
        said = "".join(
            f"{key}={self.slurm.values[key]}\n" for key in keys if key in self.slurm.values
        )
        (self.folder / "slurm" / "slurm.conf").write_text(said if self.conf is None else self.conf)
        return list(examine(Installation(self.config, lambda config: self.slurm)))

    def wrong(self) -> list[Finding]:
        return [finding for finding in self.findings() if finding.level != "ok"]

    def only(self, check: str, level: str = "fail") -> Finding:
        """The one finding that is not ok."""
        (finding,) = self.wrong()
        assert (finding.check, finding.level) == (check, level)
        assert finding.fix
        return finding


def in_slots_mode(site: PlayedSite) -> None:
    """The same installation, by slots, and all is well."""
    site.config.write_text("enforcement: slots\n" + site.config.read_text())
    site.bridge.write_text("enforcement = slots\n")
    site.slurm.all_nodes = [
        replace(node, gpus={f"v100.s{i}": 1 for i in range(node.gpu_count)})
        for node in site.slurm.all_nodes
    ]
    site.slurm.values |= {
        "PluginDir": "/usr/lib/slurm",
        "PriorityFlags": "ACCRUE_ALWAYS",
        "EpilogSlurmctld[0]": "/opt/gputopo/epilog-slurmctld",
        "SchedulerParameters": "batch_sched_delay=0,sched_min_interval=0",
    }
