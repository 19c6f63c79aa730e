"""The process that acts for users: what it believes of the engine, of Slurm and of files."""

import os
import pwd
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from importlib import resources
from pathlib import Path

import pytest
from loans_in_tests import answering

from slurm_plugin.act.lending.acting import child, donor, own_settings, question, serve
from slurm_plugin.act.lending.acting.child import run_as
from slurm_plugin.act.lending.acting.question import Question, Submitter
from slurm_plugin.config import presets
from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.errors import ConfigError, SlurmError
from slurm_plugin.node.remote import donor as on_node
from slurm_plugin.slurm.runner import Done

SETTINGS = RemoteConfig(presets.load("echo"), allow=True)
ASKED = Question(7, 1000, "dgx2", 2)
OF_JOB = ["--partition=batch", "--time=2:00", "--account=research"]
LENDS = "remote: {allow: yes, first_uid: 500}\nslurm: {timeout_s: 3}\nnodes: [whatever]\n"


# -- the engine's line --------------------------------------------------------


def test_a_question_is_read_as_it_was_asked():
    asked = Question(4711, 2001, "gpu-07.site", 2)
    assert question.read(asked.line()) == asked
    assert question.read(b"ready") is None


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"donor", b"donor 7 1000 d", b"donor 7 1000 d 2 0", b"DONOR 7 1000 d 2", b"ready "),
        *(b"donor 0 1000 d 2", b"donor -7 1000 d 2", b"donor 7_1 1000 d 2", b"donor 7 alice d 2"),
        *(b"donor 12345678901 1000 d 2", b"donor 7 12345678901 d 2", b"donor 7 -1 d 2"),
        *(b"donor 7 1000 d[1-9] 2", b"donor 7 1000 d1,d2 2", b"donor 7 1000 /etc/shadow 2"),
        *(b"donor 7 1000 --wrap=id 2", b"donor 7 1000 d 0", b"donor 7 1000 d 1000"),
        *(b"donor 7 1000 d 2\nready", b"donor  7 1000 d 2", b"\xff\xfe", "donor ٧ 1 d 2".encode()),
    ],
)
def test_any_other_line_is_refused(line):
    with pytest.raises(SlurmError, match="expected ready, or donor JOBID UID NODE GPUS"):
        question.read(line)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (b"ok 4712\n", ""),
        (b"error job 7: it is RUNNING\n", "job 7: it is RUNNING"),
        (b"ok -\n", "'-', which is no job id"),
        (b"ok 47", "expected one line"),
        (b"", "see systemctl status gputopo-donors"),
        (b"\n", "answered ''"),
    ],
)
def test_the_engine_understands_an_answer_or_says_why_not(tmp_path, reply, why):
    submitter = Submitter(tmp_path / "socket", 5)
    with answering(tmp_path / "socket", reply):
        if why:
            with pytest.raises(SlurmError, match=why):
                submitter.donor(ASKED)
        else:
            assert submitter.donor(ASKED) == 4712


def test_where_nobody_listens_the_obstacle_names_the_socket(tmp_path):
    told = Submitter(tmp_path / "socket", 5).obstacle()
    assert f"{tmp_path}/socket: No such file or directory; see systemctl status" in told


# -- Slurm's record -----------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "wanted"),
    [
        ("7|1000|PENDING|batch|2:00|research\n", " ".join(OF_JOB)),
        ("7|1000|PENDING|a,b|1-00:00:00|\n", "--partition=a,b --time=1-00:00:00"),
        ("7|1000|PENDING|batch|NOT_SET|(null)\n", "--partition=batch"),
        (
            "7|1000|PENDING|batch|UNLIMITED|a@b\n",
            "--partition=batch --time=UNLIMITED --account=a@b",
        ),
    ],
)
def test_a_donor_has_of_its_borrower_what_slurm_says_of_that(record, wanted):
    assert donor.inherited(7, 1000, record) == wanted.split()


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ("", "expected one job that waits"),
        ("7|0|PENDING|batch|2:00|root\n", "it is of uid 0; expected 1000"),
        ("7|1001|PENDING|batch|2:00|x\n", "it is of uid 1001"),
        ("7|1000|RUNNING|batch|2:00|x\n", "it is RUNNING"),
        ("6|1000|PENDING|batch|2:00|x\n8|1000|PENDING|batch|2:00|x\n", "expected one job"),
        ("8|1000|PENDING|batch|2:00|x\n", "expected one job"),
        ("7|1000|PENDING|batch|2:00|x\n" * 2, "expected one job"),
        # What a user may have written as account, where nobody enforces accounts.
        ("7|1000|PENDING|batch|2:00|x\n7|1001|PENDING|b|1:00|\n", "expected one job"),
        ("7|1000|PENDING|batch|2:00|7|1001|1\n", "cannot be asked for again"),
        ("7|1000|PENDING|batch|2:00|x --uid=0\n", "cannot be asked for again"),
        ("7|1000|PENDING|--uid=0|2:00|x\n", "expected one job"),
    ],
)
def test_any_other_record_lends_nothing(record, why):
    with pytest.raises(SlurmError, match=why):
        donor.inherited(7, 1000, record)


# -- the user's commands ------------------------------------------------------

NOBODY = pwd.getpwnam("nobody")


def test_a_command_runs_in_the_users_own_group_alone(monkeypatch):
    ran = []

    def remember(command: list[str], *limits: float, **how: object) -> Done:
        ran.append(command)
        return Done(0, "told", "")

    monkeypatch.setattr(child, "run_bounded", remember)
    assert run_as(NOBODY.pw_uid, ["squeue", "--me"], None, 5) == "told"
    [words] = ran
    who = [f"--reuid={NOBODY.pw_uid}", f"--regid={NOBODY.pw_gid}", "--clear-groups"]
    assert words[:4] == ["setpriv", *who]
    assert words[-3:] == ["--", "squeue", "--me"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_command_has_none_of_our_own_groups():
    ours = os.getgroups()
    os.setgroups([4711, *ours])
    try:
        told = run_as(NOBODY.pw_uid, ["id", "-G"], None, 5)
    finally:
        os.setgroups(ours)
    assert told.split() == [str(NOBODY.pw_gid)]


LEAVES = """
import os, subprocess, sys, time
from pathlib import Path
from slurm_plugin.act.lending.acting import child
if sys.argv[1] == "adopt":
    assert child.adopt_orphans()
script = "for i in 1 2 3 4 5 6 7 8; do (setsid sh -c 'sleep 987; true' >/dev/null 2>&1 &) ; done"
subprocess.run(["sh", "-c", script], start_new_session=True, check=True)
print(child.end_orphans() + len(child._children()))
"""


@pytest.mark.parametrize(("how", "is_left"), [("adopt", False), ("without", True)])
def test_nothing_that_a_command_started_outlives_the_answer(how, is_left):
    """In sessions of their own, as a user would who took the command over."""
    mark = f"GPUTOPO_TEST={os.getpid()}-{how}"
    environment = {**os.environ, "GPUTOPO_TEST": mark.partition("=")[2]}
    words = [sys.executable, "-c", LEAVES, how]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "0\n"
    mine = [pid for pid in processes() if mark in environment_of(pid)]
    try:
        assert bool(mine) == is_left
    finally:
        for pid in mine:
            os.kill(pid, signal.SIGKILL)


def processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def environment_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_text(errors="replace")
    return ""


# -- what is submitted --------------------------------------------------------


def test_a_donor_is_asked_for_as_its_borrower_was():
    words = donor.words(ASKED, OF_JOB, SETTINGS)
    for word in (
        "--nodelist=dgx2",
        "--cpus-per-task=2",
        "--mem=1024M",
        "--account=research",
        "--time=2:00",
        "--partition=batch",
        "--begin=now+3600",
        "--no-requeue",
        "--comment=gpu-donor of=7",
        "--propagate=NONE",
    ):
        assert word in words
    assert not any(word.startswith(("--gres", "--uid")) for word in words)


def test_a_donors_script_is_what_the_nodes_program_reads():
    text = donor.script(ASKED, SETTINGS)
    assert text.startswith("exec /usr/local/bin/gputopo-node donor '{")
    task = on_node.read(shlex.split(text)[-1], {"SLURM_JOB_ID": "71"}, "x")
    assert (task.subject, task.gpus, task.low, task.high) == ("7/71", 2, 50000, 50999)
    assert task.preset == SETTINGS.preset


# -- root's own file ----------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir(mode=0o755)
    config = tmp_path / "etc" / "gputopo.yaml"
    config.write_text(LENDS)
    config.chmod(0o644)
    return tmp_path / "etc"


def test_two_sections_of_the_configuration_are_read_and_no_more(folder):
    remote, slurm = own_settings.load(folder / "gputopo.yaml")
    assert (remote.allow, remote.first_uid, slurm.timeout_s) == (True, 500, 3)
    (folder / "gputopo.yaml").write_text("remote: {first_uid: 0}")
    with pytest.raises(ConfigError, match=r"gputopo.yaml:1: remote.first_uid: 0 is out of range"):
        own_settings.load(folder / "gputopo.yaml")
    (folder / "gputopo.yaml").write_text("[" * 5000)
    with pytest.raises(ConfigError, match=r"gputopo.yaml: cannot be read: maximum recursion"):
        own_settings.load(folder / "gputopo.yaml")


@pytest.mark.parametrize("what", ["gputopo.yaml", ".", "mine.yaml"])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_what_others_may_write_is_not_believed(folder, what, mode):
    preset = resources.files("slurm_plugin").joinpath("config/presets/echo.yaml").read_text()
    (folder / "mine.yaml").write_text(preset)
    (folder / "gputopo.yaml").write_text("remote: {allow: yes, preset: mine.yaml}")
    assert own_settings.load(folder / "gputopo.yaml")[0].preset.name == "echo"
    (folder / what).chmod((folder / what).stat().st_mode | mode)
    with pytest.raises(ConfigError, match=f"others than root may write {(folder / what)}"):
        own_settings.load(folder / "gputopo.yaml")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_the_engines_user_is_not_believed(folder):
    os.chown(folder / "gputopo.yaml", 65534, 0)
    with pytest.raises(ConfigError, match="others than root may write"):
        own_settings.load(folder / "gputopo.yaml")


# -- the process --------------------------------------------------------------


def test_it_imports_next_to_nothing_of_ours():
    script = (
        "import sys; from slurm_plugin.act.lending.acting import serve;"
        "print(sorted({'numpy', 'networkx', 'msgspec', 'asyncio', 'ctypes', 'policies',"
        " 'slurm_plugin.config.settings', 'slurm_plugin.act.lending.donors'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_whoever_is_not_the_engine_is_told_so(folder):
    for allowed, wanted in (({os.getuid()}, b"ok \n"), ({os.getuid() + 1}, b"may not ask")):
        ours, theirs = socket.socketpair(socket.AF_UNIX)
        with ours, theirs:
            theirs.sendall(b"ready\n")
            serve.talk(ours, allowed, folder / "gputopo.yaml")
            assert wanted in theirs.recv(1000)


def test_the_unit_has_four_capabilities_and_hands_none_on():
    unit = (
        resources.files("slurm_plugin").joinpath("serve/systemd/gputopo-donors.service").read_text()
    )
    lines = unit.splitlines()
    assert "CapabilityBoundingSet=CAP_SETUID CAP_SETGID CAP_SETPCAP CAP_KILL" in lines
    assert {"NoNewPrivileges=yes", "ProtectSystem=strict", "MemoryDenyWriteExecute=yes"} <= {*lines}
    assert not any(line.startswith("AmbientCapabilities") for line in lines)
    assert "--user slurm" in unit
