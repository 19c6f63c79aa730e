"""`gputopo remote`, and the one file that nodes need."""

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from slurm_plugin.cli import cli
from slurm_plugin.config import presets
from slurm_plugin.errors import RemoteError
from slurm_plugin.node import program

PROLOG = Path(program.__file__).with_name("task-prolog")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, alone in a folder."""
    target = tmp_path_factory.mktemp("node") / "gputopo-node"
    program.write(target, sys.executable)
    return target


def run(path: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The program as on a node: no package of ours, nor anybody's, can be imported."""
    env = {"PATH": "/usr/bin:/bin", "PYTHONNOUSERSITE": "1", **variables}
    argv = [sys.executable, "-I", "-S", str(path), *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=env, timeout=20)


@pytest.fixture
def echo_server(packed: Path) -> Iterator[str]:
    """A server without authentication, from the packed program; its address."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    words = [sys.executable, "-I", "-S", packed, "echo-server", "--port", str(port)]
    env = {"PATH": "/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": "2,3"}
    with subprocess.Popen(words, env=env) as server:
        while server.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
        server.kill()


def test_the_program_needs_nothing_but_python_and_finds_the_donors_of_its_job(packed, echo_server):
    done = run(packed, "echo", echo_server)
    assert (done.returncode, done.stdout) == (0, f"{socket.gethostname()} 2,3\n"), done.stderr
    done = run(packed, "echo", GPUTOPO_ECHO_SERVERS=f"{echo_server},{echo_server}")
    assert done.stdout == f"{socket.gethostname()} 2,3\n" * 2
    done = run(packed, "echo")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "GPUTOPO_ECHO_SERVERS is not set" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ((), 2, "expected one of donor, join, echo, echo-server"),
        (("donor", "{}"), 2, "gpu-donor: not a donor's task"),
        (("echo", "127.0.0.1:1"), 1, "gputopo-echo: 127.0.0.1:1: no answer"),
    ],
    ids=["no word", "no task", "nobody there"],
)
def test_the_program_says_what_is_wrong_in_one_line(packed, words, code, says):
    done = run(packed, *words)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
    assert says in done.stderr


def test_the_program_is_compiled_and_runs_under_another_version_from_its_source(packed, tmp_path):
    other = tmp_path / "other"
    with zipfile.ZipFile(packed) as old, zipfile.ZipFile(other, "w") as new:
        compiled = [name for name in old.namelist() if name.endswith(".pyc")]
        sources = [name for name in old.namelist() if name.endswith(".py")]
        assert sorted(compiled) == sorted(f"{name}c" for name in sources)
        for name in old.namelist():
            is_compiled = name in compiled
            new.writestr(name, b"\0\0\r\n" + old.read(name)[4:] if is_compiled else old.read(name))
    done = run(other, "donor", "{}")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "gpu-donor: not a donor's task" in done.stderr
    for name in compiled:
        assert zipfile.ZipFile(packed).read(name)[:4] == importlib.util.MAGIC_NUMBER


def test_the_task_prolog_leaves_other_jobs_alone(packed):
    beside = packed.with_name("task-prolog")
    # A site whose scontrol is elsewhere writes it there.
    beside.write_text(PROLOG.read_text().replace("PATH=/usr/bin", f"PATH={packed.parent}:/usr/bin"))
    beside.chmod(0o755)
    env = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run([beside], capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    scontrol = packed.with_name("scontrol")
    scontrol.write_text('#!/bin/sh\necho "   AdminComment=[gpu-topo: x]"\n')
    scontrol.chmod(0o755)
    env |= {"GPUTOPO_REMOTE": "allow", "SLURM_JOB_ID": "7"}
    done = subprocess.run([beside], capture_output=True, text=True, check=False, env=env)
    told = "unset GPUTOPO_REMOTE\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, told, "")


def test_the_task_prolog_takes_nothing_but_the_jobs_number_from_its_environment(tmp_path):
    """Programs of the user's in PATH, functions, libraries and modules stand for nothing there."""
    shutil.copy(PROLOG, tmp_path / "task-prolog")
    node = tmp_path / "gputopo-node"
    node.write_text(
        f"#!{sys.executable} -I\nimport os, sys\nprint(sys.argv[1:], dict(os.environ))\n"
    )
    users = tmp_path / "bin"
    users.mkdir()
    for name in ("scontrol", "munge", "unmunge", "python3", "env", "[", "dirname"):
        (users / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran.{name}\n")
    for path in (node, *users.iterdir()):
        path.chmod(0o755)
    hostile = {
        "PATH": f"{users}:/usr/bin:/bin",
        "LD_LIBRARY_PATH": str(users),
        "PYTHONPATH": str(users),
        "PYTHONHOME": str(users),
        "SLURM_CONF": str(users / "slurm.conf"),
        "BASH_FUNC_exec%%": f"() {{ touch {tmp_path}/ran.exec; }}",
        "ENV": str(users / "env"),
        "BASH_ENV": str(users / "env"),
        "GPUTOPO_REMOTE": "allow",
        "SLURM_JOB_ID": "7",
    }
    argv = [str(tmp_path / "task-prolog")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=hostile)
    clean = {"PATH": "/usr/bin:/bin:/usr/local/bin", "LC_ALL": "C", "SLURM_JOB_ID": "7"}
    assert (done.stdout, done.stderr) == (f"['join'] {clean}\n", "")
    assert not list(tmp_path.glob("ran.*"))


def test_a_folder_that_cannot_be_written_is_named():
    with pytest.raises(RemoteError, match="/none/node: No such file"):
        program.write(Path("/none/node"))


def test_the_command_lists_presets_and_packs_the_program(tmp_path):
    told = CliRunner().invoke(cli, ["remote", "presets"])
    assert [line.split()[0] for line in told.output.splitlines()] == presets.names()
    told = CliRunner().invoke(cli, ["remote", "presets", "--json"])
    assert [row["name"] for row in json.loads(told.output)["presets"]] == presets.names()
    told = CliRunner().invoke(cli, ["remote", "program", str(tmp_path / "node")])
    assert told.exit_code == 0
    assert os.access(tmp_path / "node", os.X_OK)
    assert (tmp_path / "node").read_bytes().startswith(b"#!/usr/bin/python3 -IS\n")
    CliRunner().invoke(cli, ["remote", "program", str(tmp_path / "node"), "--python", "/opt/py"])
    assert (tmp_path / "node").read_bytes().startswith(b"#!/opt/py -IS\n")


def test_the_command_checks_a_preset_of_the_sites_own(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text((presets.FOLDER / "template.yaml").read_text())
    told = CliRunner().invoke(cli, ["remote", "check", str(mine)])
    assert (told.exit_code, told.output) == (0, f"{mine}: template: good\n")
    mine.write_text(mine.read_text().replace("takes_port: yes", "takes_port: no"))
    told = CliRunner().invoke(cli, ["remote", "check", str(mine)])
    assert "needs trust_network: it takes no port" in told.output
    mine.write_text("name: x")
    told = CliRunner().invoke(cli, ["remote", "check", str(mine)])
    assert told.exit_code == 2
    assert f"{mine}: server: expected a list of words" in told.output
