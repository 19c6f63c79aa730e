"""With a typo in gputopo.yaml, commands that only look go on with what the engine has in force."""

import os
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from commands_in_tests import refused, run
from engine_in_tests import an_engine, written
from machines_in_tests import BASIC

from slurm_plugin.config import settings as config
from slurm_plugin.errors import ConfigError
from slurm_plugin.serve import setup

BROKEN = BASIC.replace("enforce, policy: mapa", "enforce, polcy: mapa")
GOES_ON = (
    r"^{file}:\d+: partitions\.default\.polcy: unknown key; .*; going on with what the engine"
    r" read at \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d$"
)


@pytest.fixture
def broken(tmp_path):
    """A file with a typo, whose former text an engine has in force."""
    setup.load(written(tmp_path))
    return written(tmp_path, BROKEN)


def kept(folder: Path) -> Path:
    return folder / "state" / "gputopo.yaml"


def test_the_engine_keeps_what_it_read_with_the_files_mode_but_for_others_writing(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    path = written(tmp_path)
    path.chmod(0o664)
    setup.load(path)
    head, text = kept(tmp_path).read_text().split("\n", 1)
    assert (head, text) == (f"# '{path}', as the engine read it", path.read_text())
    assert kept(tmp_path).stat().st_mode & 0o777 == 0o644
    first = kept(tmp_path).stat()
    os.utime(kept(tmp_path), (1000, 1000))
    setup.load(path)
    again = kept(tmp_path).stat()
    assert again.st_ino == first.st_ino, "the same text is not written again"
    assert again.st_mtime >= first.st_mtime, "it is as old as what was read last"
    path.chmod(0o600)
    setup.load(path)
    assert kept(tmp_path).stat().st_mode & 0o777 == 0o600


async def test_a_reload_keeps_the_new_text_and_one_that_fails_the_old(tmp_path):
    engine = an_engine(tmp_path)
    written(tmp_path, BROKEN)
    assert "polcy" in await engine.reload()
    assert "polcy" not in kept(tmp_path).read_text()
    written(tmp_path, BASIC + "deadline_ms: 40\n")
    assert await engine.reload() is None
    assert "deadline_ms: 40" in kept(tmp_path).read_text()


def test_where_nothing_can_be_kept_the_engine_says_so_once_and_works(tmp_path, caplog):
    (tmp_path / "state").write_text("a file where the folder should be")
    (tmp_path / "elsewhere").mkdir()
    text = BASIC.replace("decisions.jsonl", "elsewhere/decisions.jsonl")
    assert setup.load(written(tmp_path, text)).config.deadline_ms == 50
    lines = [one.getMessage() for one in caplog.records if "gputopo.yaml is wrong" in one.msg]
    assert len(lines) == 1
    assert str(kept(tmp_path)) in lines[0]


def test_what_is_used_is_the_engines_text_with_files_beside_the_original(tmp_path, caplog):
    (tmp_path / "topology.conf").write_text("SwitchName=s1 Nodes=dgx[1-3],mirrored,minsky1\n")
    setup.load(written(tmp_path, BASIC + "topology_conf: topology.conf\n"))
    path = written(tmp_path, BROKEN)
    found = config.in_force(path)
    assert found.topology_conf == tmp_path / "topology.conf"
    assert found.partitions["default"].policy == "mapa"
    assert found.path == path
    [line] = [one.getMessage() for one in caplog.records]
    assert re.search(GOES_ON.format(file=path), line)


def test_a_file_that_is_not_yaml_or_not_there_any_more_has_a_copy_too(tmp_path, caplog):
    setup.load(path := written(tmp_path))
    for text in (f"state_dir: '{tmp_path}/state' # here\nnodes: [", "state_dir: state\na: {\0"):
        path.write_text(text)
        assert config.in_force(path).nodes
    # By the default place alone: nothing says where else it would be.
    path.unlink()
    with pytest.raises(ConfigError, match="No such file"):
        config.in_force(path)


@pytest.mark.parametrize("command", ["explain 7", "why 7", "try -n1", "top", "report",
                                     "slots list", "status"])  # fmt: skip
def test_commands_that_only_look_go_on(broken, monkeypatch, caplog, command):
    """They get as far as they do with a good file: no Slurm and no engine is there."""
    monkeypatch.setenv("PATH", "/none")
    words = command.split()
    at = 2 if words[0] == "slots" else 1
    argv = [*words[:at], "--config", str(broken), *words[at:]]
    code = 0 if words[0] == "report" else 2
    said = run(*argv, code=code)
    assert "polcy" not in said
    lines = [one.getMessage() for one in caplog.records if "going on" in one.getMessage()]
    assert len(lines) == 1
    assert re.search(GOES_ON.format(file=broken), lines[0])


def test_the_line_is_on_standard_error(broken):
    argv = [sys.executable, "-c", "from slurm_plugin.cli import main; main()"]
    argv += ["report", "--json", "--config", str(broken)]
    env = os.environ | {"PATH": "/none", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("{")
    assert re.search(GOES_ON.format(file=broken), done.stderr)
    assert done.stderr.count("\n") == 1


def test_doctor_and_config_check_show_the_error_and_serve_uses_no_copy(broken, monkeypatch):
    monkeypatch.setenv("PATH", "/none")
    assert "polcy" in refused("config", "check", "--config", str(broken))
    assert "polcy" in run("doctor", "--config", str(broken), code=1)
    with pytest.raises(ConfigError, match="polcy"):
        setup.load(broken)


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe", b"# '/etc/slurm/gputopo.yaml', as the engine read it\nnodes: []\n",
     b"HEAD\nnodes: [", b"HEAD\nsockte: x", b"HEAD\n\xff", b"HEAD\nnodes: " + b"[" * 5000,
     b"HEAD\n" + b"#" * (2 << 20)],
    ids=["empty", "no text", "another file's", "no YAML", "no key of this release", "no UTF-8",
         "deep", "large"],
)  # fmt: skip
def test_a_copy_that_cannot_be_used_leaves_the_files_own_error(broken, tmp_path, content):
    head = kept(tmp_path).read_bytes().split(b"\n")[0]
    kept(tmp_path).write_bytes(content.replace(b"HEAD", head))
    with pytest.raises(ConfigError, match="polcy"):
        config.in_force(broken)


def test_control_characters_of_a_wrong_file_reach_no_terminal(tmp_path, caplog):
    setup.load(path := written(tmp_path))
    path.write_text(f'state_dir: {tmp_path}/state\n"a\\e[2J": 1\n')
    config.in_force(path)
    [line] = [one.getMessage() for one in caplog.records]
    assert line.isprintable()


def test_a_time_that_somebody_made_up_is_no_error(broken, tmp_path, caplog):
    for at in (0, -(1 << 40), 1 << 60):
        try:
            os.utime(kept(tmp_path), (at, at))
        except OSError:
            continue
        assert config.in_force(broken).nodes
    years = {int(year) for year in re.findall(r"read at (\d+)-", caplog.text)}
    assert years
    assert years <= {1969, 1970, datetime.now().year}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it is about what root trusts")
def test_root_runs_no_program_that_the_engines_copy_names(tmp_path, monkeypatch, caplog):
    (tmp_path / "state").mkdir()
    os.chown(tmp_path / "state", 12345, 12345)
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "squeue"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    setup.load(written(tmp_path, BASIC + "slurm: {{bin_dir: {folder}/bin}}\n"))
    assert kept(tmp_path).stat().st_uid == 12345
    path = written(tmp_path, BROKEN)
    monkeypatch.setenv("PATH", "/none")
    assert config.in_force(path).slurm.bin_dir is None
    assert "so slurm.bin_dir is not used" in caplog.text
    run("why", "7", "--config", str(path), code=2)
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it is about what root reads")
@pytest.mark.parametrize("kind", ["link", "hard link", "FIFO", "folder"])
def test_root_reads_no_copy_that_leads_elsewhere(tmp_path, kind):
    setup.load(written(tmp_path))
    there = kept(tmp_path)
    (tmp_path / "other").write_bytes(there.read_bytes())
    there.unlink()
    os.chown(tmp_path / "state", 12345, 12345)
    if kind == "link":
        there.symlink_to(tmp_path / "other")
    elif kind == "hard link":
        there.hardlink_to(tmp_path / "other")
    elif kind == "FIFO":
        os.mkfifo(there)
    else:
        there.mkdir()
    with pytest.raises(ConfigError, match="polcy"):
        config.in_force(written(tmp_path, BROKEN))
