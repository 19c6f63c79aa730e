"""Ansible against containers: the role's own playbook, from ansible-core as PyPI has it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from site_host import ROOT, Host

ROLE = ROOT / "packaging" / "ansible"
CONFIG = {
    "nodes": [{"nodes": "dgx1", "topology": "dgx1v", "slurm_index": "identity"}],
    "partitions": {"default": {"mode": "enforce"}},
}
#: Takes ssh's place: the last two words are the host and a shell command.
SSH = """\
#!/bin/sh
while [ $# -gt 2 ]; do shift; done
exec docker exec -i "$1" sh -c "$2"
"""
#: The tools of this Python's environment come first.
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def need(tool: str) -> None:
    """Skips the test where the tool is not installed."""
    if shutil.which(tool, path=PATH) is None:
        pytest.skip(f"{tool} is not installed: pip install '.[ansible]'")


class Play:
    """packaging/ansible/site.yml for these hosts, run in `folder`."""

    def __init__(
        self, folder: Path, packages: Path | None = None, hosts: Mapping[str, Host] | None = None
    ) -> None:
        self.folder = folder
        self.wanted = {
            "gputopo_config": CONFIG,
            "gputopo_packages": str(packages),
            "gputopo_restart_slurmctld": True,
        }
        (folder / "ssh").write_text(SSH)
        (folder / "ssh").chmod(0o755)
        known = {name: {"ansible_host": host.id} for name, host in (hosts or {}).items()}
        groups = {"slurm": {"hosts": known}, "slurmctld": {"hosts": {"controller": {}}}}
        variables = {"ansible_user": "root", "ansible_python_interpreter": "/usr/bin/python3"}
        inventory = {"all": {"vars": variables, "children": groups}}
        (folder / "inventory.yml").write_text(json.dumps(inventory))

    def tool(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One of Ansible's commands, with nothing of the user's settings."""
        environ = {
            **{name: text for name, text in os.environ.items() if not name.startswith("ANSIBLE_")},
            "PATH": PATH,
            "ANSIBLE_HOME": str(self.folder / "home"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_SSH_EXECUTABLE": str(self.folder / "ssh"),
            "ANSIBLE_SSH_TRANSFER_METHOD": "piped",
        }
        return subprocess.run(
            words,
            cwd=self.folder,
            env=environ,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=600,
        )

    def changes(self, *options: str) -> dict[str, int]:
        """Runs it; how many tasks changed something, by host. AssertionError where it failed."""
        words = ["ansible-playbook", "-i", "inventory.yml", "-e", json.dumps(self.wanted)]
        done = self.tool(*words, *options, str(ROLE / "site.yml"))
        assert done.returncode == 0, done.stdout
        recap = re.findall(r"^(\S+) +: ok=\d+ +changed=(\d+) ", done.stdout, re.M)
        return {host: int(count) for host, count in recap}
