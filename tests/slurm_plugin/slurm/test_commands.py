"""The command line: documented, quick to start, one line per error."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from commands_in_tests import refused, run
from engine_in_tests import written
from machines_in_tests import BASIC

from slurm_plugin.base.log_lines import of_plain
from slurm_plugin.cli import cli
from slurm_plugin.config.sections import DecisionLogConfig
from slurm_plugin.decide.decision_log import DecisionLog

ROOT = Path(__file__).resolve().parents[3]


def commands(group: click.Group, path: str = "gputopo") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


ALL = dict(commands(cli))


@pytest.mark.parametrize("path", ALL)
def test_every_command_and_option_is_documented(path):
    command = ALL[path]
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{path} {parameter.opts[0]} has no help"


@pytest.mark.parametrize("path", ALL)
def test_every_command_is_in_the_guides(path):
    pages = [*ROOT.glob("docs/*.md"), ROOT / "README.md"]
    text = "\n".join(page.read_text() for page in pages)
    assert path in text


def test_help_imports_nothing_heavy():
    script = (
        "import sys; from slurm_plugin.cli import cli; cli(['--version'], standalone_mode=False);"
        "print(sorted({'numpy', 'yaml', 'asyncio', 'networkx', 'policies'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_place_names_the_gpus_in_rank_order_with_their_scores():
    told = json.loads(
        run("place", "--machine", "dgx1v", "--free", "0-2,5", "--gpus", "2", "--json")
    )
    assert told["nodes"] == {"dgx1v": told["gpus"]}
    assert set(told["gpus"]) in ({1, 2}, {1, 5})
    assert told["effbw_gbps"] == pytest.approx(39.08, abs=0.01)
    assert told["agg_gbps"] == 50
    assert {"score", "preserved_gbps", "policy", "reason"} <= told.keys()


def test_place_without_json_says_it_in_words():
    args = ("place", "--machine", "minsky", "--gpus", "2", "--hint", "policy=first-fit")
    assert "GPUs 0,1" in run(*args)


def test_place_says_when_a_policy_would_wait():
    args = ("place", "--machine", "dgx1v", "--free", "0,5", "--gpus", "2")
    told = json.loads(run(*args, "--hint", "min-utility=0.9", "--json"))
    assert told["wait_s"] is None, "the site bounds it, which is not known here"
    assert "0.26 of the bandwidth of the best" in told["wait_reason"]
    assert told["gpus"]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--machine", "dgx9", "--gpus", "1"], "neither a file nor a machine of the catalog"),
        (["--machine", "dgx1v", "--gpus", "9"], "only 8 of 8 GPUs are free"),
        (["--machine", "dgx1v", "--gpus", "0"], "'--gpus'"),
        (["--machine", "dgx1v", "--gpus", "two"], "'--gpus'"),
        (["--machine", "dgx1v"], "Missing option '--gpus'"),
        (["--machine", "dgx1v", "--gpus", "1", "--free", "a"], "is not a list such as 0-3,8"),
        (["--machine", "dgx1v", "--gpus", "1", "--free", "8"], "has GPUs 0-7, not 8"),
        (["--machine", "dgx1v", "--gpus", "3", "--free", "0,1"], "only 2 of 8"),
        (["--machine", "dgx1v", "--gpus", "2", "--hint", "pattern=knot"], "pattern: 'knot'"),
        (["--machine", "dgx1v", "--gpus", "2", "--hint", "off"], "Slurm chooses"),
        (["--machine", "/etc/hostname", "--gpus", "1"], "not a topology"),
    ],
)
def test_a_bad_place_is_one_clear_line_and_exit_status_2(args, says):
    assert says in refused("place", *args)


def test_status_of_no_engine_is_one_clear_line(tmp_path):
    said = refused("status", "--socket", str(tmp_path / "none"))
    assert re.match(r"Error: \S+none: no such socket: the engine is not running; ", said)


def test_config_check_says_what_would_be_loaded(tmp_path):
    path = tmp_path / "gputopo.yaml"
    path.write_text("nodes: [{nodes: 'a[1-2]', topology: minsky}, {nodes: b, topology: collected}]")
    said = run("config", "check", str(path))
    assert "3 nodes" in said
    assert "b: left to Slurm's own choice: not collected yet" in said
    told = json.loads(run("config", "check", str(path), "--json"))
    assert (told["ok"], told["nodes"], told["rules"]) == (True, 3, 1)
    assert told["left_to_slurm"]["b"].startswith("not collected yet")


def test_config_check_names_line_and_key_and_exits_with_2(tmp_path):
    path = tmp_path / "gputopo.yaml"
    path.write_text("\nsockte: /x")
    assert f"{path}:2: sockte: unknown key" in refused("config", "check", str(path))


MANY = """\
nodse: 1
waiting: {max_wait_s: x, step_z: 3}
nodes:
  - {nodes: "n[1-", topology: dgx1v}
  - {nodes: "n4"}
  - {nodes: "n5", topology: dgx1v}
  - {nodes: "n5", topology: dgx1v}
partitions:
  default: {mode: enforc, policy: horizn}
  a: {hints: {patern: ring, spred: yes}}
  a: {}
"""
MISTAKES = [
    (1, "nodse: unknown key; allowed: socket", "nodes"),
    (2, "waiting.step_z: unknown key; allowed: max_postponements", "step_s"),
    (2, "waiting.max_wait_s: 'x' is not a number; expected integer from 0", ""),
    (4, "nodes[0].nodes: 'n[1-' is no host list; expected forms like", ""),
    (5, "nodes[1].topology: missing; A machine of the catalog", ""),
    (7, "nodes[3].nodes: node n5 was already declared in line 6", ""),
    (9, "partitions.default.mode: 'enforc' is not one of off, observe", "enforce"),
    (9, "partitions.default.policy: 'horizn' is no policy; known: ", "horizon"),
    (10, "partitions.a.hints.patern: unknown key 'patern'; expected one of", "pattern"),
    (10, "partitions.a.hints.spred: unknown key 'spred'; expected one of", "spread"),
    (11, "partitions.a: given twice", ""),
]


def test_config_check_tells_all_mistakes_of_a_file_at_once_and_what_was_meant(tmp_path):
    path = tmp_path / "gputopo.yaml"
    path.write_text(MANY)
    said = run("config", "check", str(path), code=2).splitlines()
    assert len(said) == len(MISTAKES)
    for told, (line, text, meant) in zip(said, MISTAKES, strict=True):
        assert told.startswith(f"Error: {path}:{line}: {text}")
        assert told.endswith(f"; did you mean {meant}?" if meant else told[-1])
    as_json = json.loads(run("config", "check", str(path), "--json", code=2))
    assert as_json == {"ok": False, "errors": [one.removeprefix("Error: ") for one in said]}


def test_the_keys_as_json_are_those_of_the_tables():
    rows, tables = json.loads(run("config", "keys", "--json")), run("config", "keys")
    assert len(rows) == sum(line.startswith("| `") for line in tables.splitlines())
    [row] = (row for row in rows if (row["section"], row["key"]) == ("waiting", "max_wait_s"))
    assert (row["type"], row["default"]) == ("integer", "600")
    assert row["meaning"].startswith("Seconds in all a job may be postponed")


@pytest.mark.parametrize("command", ["web", "top"])
def test_without_slurm_the_page_names_the_recorded_day(command, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    said = refused(command, "--config", str(tmp_path / "none.yaml"))
    assert said.endswith("; --demo shows a recorded day without any Slurm\n")


def test_config_check_tells_of_every_machine_that_there_is_not(tmp_path):
    path = tmp_path / "gputopo.yaml"
    sets = [f'  - {{nodes: "n{n}", topology: {name}}}' for n, name in enumerate(("dgx1w", "mi300"))]
    path.write_text("\n".join(["nodes:", *sets]))
    first, second = run("config", "check", str(path), code=2).splitlines()
    assert first.startswith(f"Error: {path}:2: nodes[0].topology: 'dgx1w' is neither")
    assert "did you mean dgx1" in first
    assert "did you mean mi300" in second


def test_other_commands_tell_the_first_mistake_and_how_many_there_are(tmp_path):
    path = tmp_path / "gputopo.yaml"
    path.write_text(MANY)
    said = refused("topology", "marks", "--config", str(path))
    assert f"{path}:1: nodse: unknown key" in said
    assert said.endswith(" (and 10 more: gputopo config check lists them)\n")


@pytest.mark.parametrize("text", ["", "# nothing\n", "nodes: []\n", "---\n"])
def test_config_check_says_that_a_file_declares_no_nodes(tmp_path, text):
    path = tmp_path / "gputopo.yaml"
    path.write_text(text)
    assert "no nodes are declared, so Slurm places every job" in run("config", "check", str(path))


def test_a_configuration_cut_anywhere_is_read_or_refused(tmp_path):
    path = tmp_path / "gputopo.yaml"
    for end in range(0, len(MANY), 3):
        path.write_text(MANY[:end])
        done = CliRunner().invoke(cli, ["config", "check", str(path)])
        assert done.exit_code in (0, 2), done.output
        assert done.exception is None or isinstance(done.exception, SystemExit)


def test_config_check_names_the_line_of_a_network_that_the_engine_would_refuse(tmp_path):
    path = tmp_path / "gputopo.yaml"
    path.write_text("topology_conf: net.conf\nnodes: [{nodes: 'a[1-2]', topology: minsky}]")
    network = tmp_path / "net.conf"
    network.write_text("BlockName=b1 Nodes=a[1-2]\nBlockSizes=2\n")
    assert "2 nodes" in run("config", "check", str(path))
    network.write_text("BlockName=b1 Nodes=a[1-2]\nBlockNme=b2 Nodes=a3\n")
    assert f"{network}:2: 'BlockNme=b2 Nodes=a3' names no" in refused("config", "check", str(path))


def test_explain_shows_the_last_decision_beside_slurms_own(tmp_path):
    path = written(tmp_path)
    scores = {"score": 1.0, "effbw_gbps": 39.08, "agg_gbps": 50.0, "preserved_gbps": 422.0}
    log = DecisionLog(DecisionLogConfig(tmp_path / "decisions.jsonl", 1, 1))
    for decision in ("wait", "use"):
        log.append(of_plain({
            "time": "2026-01-01T00:00:00+00:00", "job": 12, "array": 11, "partition": "gpu",
            "mode": "enforce", "decision": decision, "why": "placed", "policy": "mapa",
            "pattern": "ring", "slurm": {"gpus": {"n1": [0, 1]}, **scores},
            "chosen": {"gpus": {"n1": [0, 3]}, **scores},
        }))  # fmt: skip
    log.close()
    said = run("explain", "12", "--config", str(path))
    assert "partition gpu (enforce)" in said
    assert re.search(r"before +2026-01-01T00:00:00", said)
    assert re.search(r"chosen +n1: 0,3 +39.1 GB/s for its pattern", said)
    assert re.search(r"Slurm's own +n1: 0,1", said)
    assert run("explain", "11", "--all", "--json", "--config", str(path)).count("\n") == 2
    assert "job 99: no decision in" in refused("explain", "99", "--config", str(path))


def test_doctor_exits_with_1_and_says_what_to_fix(tmp_path):
    path = written(tmp_path, BASIC + "slurm: {{bin_dir: {folder}}}\n")
    told = json.loads(run("doctor", "--config", str(path), "--json", code=1))
    assert told["ok"] is False
    assert all(finding["fix"] for finding in told["findings"] if finding["level"] == "fail")
