"""What docs/writing-a-policy.md shows is what happens: its blocks are a package that works."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "writing-a-policy.md").read_text(encoding="utf-8")
ALL_IN_ONE = """
import json, sys
from click.testing import CliRunner
from slurm_plugin.cli import cli
print(json.dumps([CliRunner().invoke(cli, line.split()[1:]).output for line in sys.argv[1:]]))
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's files, and what pip writes beside an installed package: its entry points."""
    folder = tmp_path_factory.mktemp("spare")
    (pyproject,), (policy, test), (config,) = blocks("toml"), blocks("python"), blocks("yaml")
    (folder / "spare.py").write_text(policy)
    (folder / "test_spare.py").write_text(test)
    own = "socket: engine.sock\nstate_dir: state\ndecision_log: {path: decisions.jsonl}\n"
    (folder / "gputopo.yaml").write_text(own + config)
    project = tomllib.loads(pyproject)["project"]
    info = folder / f"{project['name']}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: spare\nVersion: 0.1\n")
    lines = [
        "\n".join([f"[{group}]", *(f"{name} = {what}" for name, what in names.items())])
        for group, names in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return folder


def run(folder: Path, *words: str) -> str:
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
    )
    return done.stdout


SHOWN = dict(part.split("\n", 1) for block in blocks("console") for part in block.split("$ ")[1:])
WRONG = re.search(r"`(spare\.gpus: [^`]*)`", PAGE.replace("\n", " "))


@pytest.fixture(scope="module")
def printed(package: Path) -> dict[str, str]:
    """What each command prints, in one process in which the package is installed."""
    (package / "wrong.yaml").write_text("spare: {gpus: 17}\n")
    others = ["hints --markdown", "config keys", "config check wrong.yaml"]
    commands = [*SHOWN, *(f"gputopo {words}" for words in others)]
    answers = run(package, "-c", ALL_IN_ONE, *commands)
    return dict(zip(commands, json.loads(answers), strict=True))


@pytest.mark.parametrize("command", SHOWN)
def test_a_command_prints_what_the_page_shows(printed: dict[str, str], command: str) -> None:
    assert printed[command] == SHOWN[command]


def test_its_keys_stand_in_the_references_and_are_checked(printed: dict[str, str]) -> None:
    assert "| `haste` | yes, no (or alone) | no | takes GPUs" in printed["gputopo hints --markdown"]
    keys = printed["gputopo config keys"]
    assert "| `spare` | section |  | Settings of the policy `spare`. |" in keys
    assert "### `spare`" in keys
    assert WRONG is not None
    assert f"wrong.yaml:1: {WRONG[1]}" in printed["gputopo config check wrong.yaml"]


def test_it_has_a_row_beside_the_other_policies(package: Path) -> None:
    table = run(package, "-m", "simulation.report.pareto", "--seeds", "1", "--jobs", "5")
    assert re.search(r"^spare +\d\.\d", table, re.M), table


def test_the_pages_own_tests_pass(package: Path) -> None:
    report = run(package, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_spare.py")
    assert "3 passed" in report, report
