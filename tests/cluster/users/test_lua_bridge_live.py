"""The Lua bridge in a live slurmctld, with a stand-in for the engine that can misbehave."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from modes import enforcement

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import ClusterError, Result

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.both_modes,
    pytest.mark.long("the same in the other mode", "slots"),
]

SOURCE = (Path(__file__).parents[1] / "assets" / "fake_engine.py").read_text()
SETTINGS = "/etc/slurm/gputopo-bridge.conf"
SOCKET = "/run/gputopo/engine.sock"
BRACKET = "[gpu-topo: pattern=ring]"
HINT = "--comment=gpu-topo: pattern=ring"
ENGINES_LINE = "gpu-topo: unknown key 'patern', allowed: all"


class StandIn:
    """A fake engine inside the controller, in the real one's place."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self._cluster = cluster
        self._log = f"/tmp/stand-in.{number}.log"

    def start(self, behaviour: str) -> None:
        start = (
            'printf %s "$1" >/tmp/stand-in.py; : >"$4"; chown slurm "$4";'
            " setsid setpriv --reuid slurm --regid slurm --clear-groups"
            ' python3 /tmp/stand-in.py "$2" "$4" "$3" >/dev/null 2>&1 </dev/null &'
            " echo $! >/tmp/stand-in.pid; for i in $(seq 100); do"
            ' socat -u OPEN:/dev/null UNIX-CONNECT:"$2" 2>/dev/null && exit 0;'
            " sleep 0.1; done; exit 1"
        )
        self._cluster.run("ctl", ["sh", "-c", start, "sh", SOURCE, SOCKET, behaviour, self._log])

    def signal(self, name: str) -> None:
        self._cluster.run("ctl", f"kill -{name} $(cat /tmp/stand-in.pid)", check=False)

    def stop(self) -> None:
        self.signal("CONT")
        self.signal("KILL")
        self._cluster.run("ctl", ["rm", "-f", SOCKET])

    def requests(self) -> list[str]:
        """The request lines so far, without their ids."""
        lines = self._cluster.run("ctl", ["cat", self._log]).out.splitlines()
        return [" ".join(w for w in line.split(" ") if not w.startswith("id=")) for line in lines]


Start = Callable[[str], StandIn]
_numbers = itertools.count(1)
_touched = 0


@pytest.fixture(scope="module", autouse=True)
def no_engine(session_cluster: Cluster) -> Iterator[None]:
    """The real engine is away; the bridge waits a little longer for the one of the tests."""
    with session_cluster.at_home(engine=False, deadline_ms=None):
        session_cluster.engine("stop")
        session_cluster.run("ctl", f"rm -f {SETTINGS}; echo deadline_ms=500 >{SETTINGS}")
        session_cluster.restart_slurmctld()
        yield


@pytest.fixture
def stand_in(cluster: Cluster) -> Iterator[Callable[[str], StandIn]]:
    """stand_in(behaviour): starts it and lets the bridge begin anew (no pause from before)."""
    fake = StandIn(cluster, next(_numbers))

    def start(behaviour: str) -> StandIn:
        fake.start(behaviour)
        reload_script(cluster)
        return fake

    yield start
    fake.stop()
    reload_script(cluster)


def reload_script(cluster: Cluster) -> None:
    # slurmctld loads a script again when its time, in whole seconds, is later than before.
    global _touched
    _touched = max(_touched, int(time.time())) + 1
    cluster.run("ctl", ["touch", "-d", f"@{_touched}", "/etc/slurm/job_submit.lua"])


def submit(cluster: Cluster, *args: str, tool: str = "sbatch") -> Result:
    command = [tool, "-J", "j", *args]
    command += ["-o", "/dev/null", "--wrap", "true"] if tool == "sbatch" else ["true"]
    return cluster.run("ctl", command, user="alice", check=False)


def in_every_mode(line: str) -> str:
    """A request without what the slots mode tells besides."""
    return line.partition(" slots=1 ")[0]


ONE_JOB = [
    ["--gres=gpu:2"],
    ["--gpus=2"],
    ["--gpus-per-node=2"],
    ["--gpus-per-task=2", "-n1"],
    ["--gpus=2", "-N1", "-n1"],
]
TWO_NODE_JOB = [
    ["-N2", "--gres=gpu:v100:4"],
    ["-N2", "--gpus=v100:8"],
    ["-N2", "--gpus-per-node=v100:4"],
    ["-N2", "--gpus-per-task=v100:4", "-n2"],
]


def test_every_way_to_ask_gives_the_same_request(cluster: Cluster, stand_in: Start) -> None:
    """sbatch, srun and salloc; --gres, --gpus, --gpus-per-node and --gpus-per-task."""
    engine = stand_in("pass")
    tools = ("sbatch", "srun", "salloc")
    for tool in tools:
        for args in ONE_JOB:
            assert submit(cluster, *args, tool=tool).code == 0
    lines = engine.requests()
    # On 22.05 srun and salloc can have no slots, and without a hint there is nothing to ask.
    asked = tools[:1] if enforcement() == "slots" and cluster.release < (23, 2) else tools
    assert len(lines) == len(asked) * len(ONE_JOB)
    assert set(map(in_every_mode, lines)) == {
        "submit uid=2001 account=research partition=gpu gpus=2 nodes=1 per_node=2 tasks=1"
    }
    for args in TWO_NODE_JOB:
        assert submit(cluster, "-p", "dgx", *args).code == 0
    assert set(map(in_every_mode, engine.requests()[len(lines) :])) == {
        "submit uid=2001 account=research partition=dgx gpus=8 type=v100 nodes=2 per_node=4 tasks=2"
    }


@pytest.mark.long("a detail of what a shorter test shows")
def test_jobs_without_gpus_are_not_asked_about(cluster: Cluster, stand_in: Start) -> None:
    """They start and end without a line to the engine; only a hint on them is refused."""
    engine = stand_in("refuse")
    for tool in ("sbatch", "srun"):
        assert submit(cluster, "-c2", tool=tool).code == 0
    refused = submit(cluster, HINT)
    assert refused.code != 0
    assert "asks for no GPUs" in refused.err
    assert engine.requests() == []


@pytest.mark.parametrize("tool", ["sbatch", "srun", "salloc", "sbatch --test-only"])
def test_a_bad_hint_is_refused_with_the_engines_line(
    cluster: Cluster, stand_in: Start, tool: str
) -> None:
    """The user sees the sentence, the submit fails, and no job is left behind."""
    stand_in("refuse")
    name, *options = tool.split()
    refused = submit(
        cluster, *options, "--gres=gpu:1", "--comment=gpu-topo: patern=ring", tool=name
    )
    assert refused.code != 0
    assert ENGINES_LINE in refused.err
    assert cluster.run("ctl", "squeue -h").out == ""


def test_a_good_reply_reaches_the_job(cluster: Cluster, stand_in: Start) -> None:
    """Bracket and environment of a batch job; an array is one request; the user's comment stays."""
    engine = stand_in("bracket")
    jobid = cluster.sbatch("--gres=gpu:1", HINT)
    assert cluster.job(jobid).fields["AdminComment"] == BRACKET
    assert cluster.env_of(jobid)["GPUTOPO_LIVE_TEST"] == "from the engine"
    array = cluster.sbatch("--array=0-3", "--gres=gpu:1", HINT)
    assert {job.fields["AdminComment"] for job in cluster.jobs(array)} == {BRACKET}
    assert len(engine.requests()) == 2
    assert submit(cluster, "--gres=gpu:1", tool="srun").code == 0


def test_a_heterogeneous_job_is_asked_about_per_component(
    cluster: Cluster, stand_in: Start
) -> None:
    """The component without GPUs is let through although it carries the hint."""
    engine = stand_in("bracket")
    components = [HINT, "-n1", ":", HINT, "--gres=gpu:1", ":", HINT, "--gpus=2"]
    command = ["sbatch", "--parsable", "-o", "/dev/null", *components, "--wrap", "true"]
    done = cluster.run("ctl", command, user="alice")
    comments = [job.fields.get("AdminComment") for job in cluster.jobs(int(done.out))]
    assert comments == [None, BRACKET, BRACKET]
    assert len(engine.requests()) == 2


SITE_SCRIPT = """
package.path = "MODULES/?.lua;" .. package.path
local found, gputopo = pcall(require, "gputopo.bridge")
function slurm_job_submit(job_desc, part_list, submit_uid)
  job_desc.admin_comment = "budget 7 [gpu-topo: old]"
  return found and gputopo.job_submit(job_desc, part_list, submit_uid) or slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, submit_uid)
  return found and gputopo.job_modify(job_desc, job_rec, part_list, submit_uid) or slurm.SUCCESS
end
return slurm.SUCCESS
"""


def test_a_sites_own_script_and_what_it_writes_are_kept(cluster: Cluster, stand_in: Start) -> None:
    """The site's script calls the bridge; its admin comment stays, an older bracket goes."""
    install = (
        'modules=$(dirname "$(readlink -f /etc/slurm/job_submit.lua)"); cd /etc/slurm;'
        ' rm job_submit.lua; printf %s "$1" | sed "s|MODULES|$modules|" >job_submit.lua'
    )
    try:
        cluster.run("ctl", ["sh", "-c", install, "sh", SITE_SCRIPT])
        stand_in("bracket")
        jobid = cluster.sbatch("--gres=gpu:1", HINT)
        assert cluster.job(jobid).fields["AdminComment"] == f"budget 7 {BRACKET}"
        jobid = cluster.sbatch("-n1")
        assert cluster.job(jobid).fields["AdminComment"] == "budget 7"
    finally:
        # Puts the project's own script back.
        cluster.restart_slurmctld()


@pytest.mark.parametrize(
    "behaviour", ["silent", "garbage", "half", "close", "huge", "stopped", "dead", "gone"]
)
def test_the_job_runs_when_the_engine_is(cluster: Cluster, stand_in: Start, behaviour: str) -> None:
    """Whatever the engine does, the job is accepted and ends well; the log has one line."""
    engine = stand_in("pass" if behaviour in ("stopped", "dead", "gone") else behaviour)
    if behaviour == "stopped":
        engine.signal("STOP")
    elif behaviour == "dead":
        engine.signal("KILL")
    elif behaviour == "gone":
        engine.stop()
    with cluster.slurmctld_log_of() as log:
        ids = [cluster.sbatch("--gres=gpu:1", HINT) for _ in range(3)]
    for jobid in ids:
        assert cluster.wait_finished(jobid).state == "COMPLETED"
    assert sum("lua: gputopo: no answer" in line for line in log) == 1


def test_the_log_tells_when_the_engine_is_back(cluster: Cluster, stand_in: Start) -> None:
    """An engine restarted during the pause is used again after it, without touching slurmctld."""
    engine = stand_in("pass")
    engine.stop()
    assert submit(cluster, "--gres=gpu:1").code == 0
    engine.start("bracket")
    with cluster.slurmctld_log_of() as log:
        for _ in range(60):
            jobid = cluster.sbatch("--gres=gpu:1")
            if cluster.job(jobid).fields.get("AdminComment") == BRACKET:
                break
            cluster.run("ctl", "sleep 0.2")
        else:
            pytest.fail("the engine was not asked again within 12 s")
    assert sum("lua: gputopo:" in line and "answers again" in line for line in log) == 1


@pytest.mark.long("a detail of what a shorter test shows")
def test_an_engine_restarted_between_two_submits_is_found_at_once(
    cluster: Cluster, stand_in: Start
) -> None:
    """The kept connection is dead; one reconnect happens inside the same submit."""
    engine = stand_in("bracket")
    cluster.sbatch("--gres=gpu:1")
    engine.stop()
    engine.start("bracket")
    with cluster.slurmctld_log_of() as log:
        jobid = cluster.sbatch("--gres=gpu:1")
    assert cluster.job(jobid).fields["AdminComment"] == BRACKET
    assert not any("lua: gputopo: no answer" in line for line in log)


@pytest.mark.long("the bridge's own tests have the same without a cluster")
def test_enormous_and_odd_hints_get_one_clear_line(cluster: Cluster, stand_in: Start) -> None:
    """Too long: refused with its length. Control characters and brackets too. Quotes: carried."""
    engine = stand_in("bracket")
    for size in (100_000, 3_000_000):
        text = f"head -c {size} /dev/zero | tr '\\0' x"
        script = f"(echo '#!/bin/sh'; printf '#SBATCH --comment=gpu-topo:'; {text}; echo)"
        refused = cluster.run("ctl", f"{script} | sbatch --gres=gpu:1", user="alice", check=False)
        assert refused.code != 0
        assert f"the hint is {size} bytes long, at most 1024 are allowed" in refused.err
    for bad in ("\n", "\t", "\x1b[31m"):
        refused = submit(cluster, "--gres=gpu:1", f"--comment=gpu-topo: pattern{bad}=ring")
        assert refused.code != 0
        assert "control character" in refused.err
    for bad in "[]|":
        refused = submit(cluster, "--gres=gpu:1", f"--comment=gpu-topo: pattern=ring{bad}")
        assert refused.code != 0
        assert f"the hint holds '{bad}'" in refused.err
    assert engine.requests() == []
    assert submit(cluster, "--gres=gpu:1", """--comment=gpu-topo: a="b"'c'%41$(id)""").code == 0
    assert in_every_mode(engine.requests()[0]).endswith("""hint=a="b"'c'%2541$(id)""")
    assert cluster.run("ctl", ["scontrol", "ping"]).code == 0


def test_a_changed_hint_is_checked_too(cluster: Cluster, stand_in: Start) -> None:
    """scontrol update comment=...: refused with the engine's line, or applied for root."""
    engine = stand_in("bracket")
    update = ["scontrol", "update", "comment=gpu-topo: pattern=ring"]
    older = "admincomment=[gpu-topo: pattern=star] budget 7"
    held = ["-H", "--gres=gpu:1"]
    jobid = cluster.sbatch(*held, user="root")
    cluster.run("ctl", ["scontrol", "update", f"jobid={jobid}", older])
    cluster.run("ctl", [*update, f"jobid={jobid}"])
    assert cluster.job(jobid).fields["AdminComment"] == f"budget 7 {BRACKET}"
    own = cluster.sbatch(*held, HINT)
    cluster.run("ctl", ["scontrol", "update", f"jobid={own}", older])
    # scontrol of 22.05 does not print what the hook tells the user.
    shows_lines = cluster.suite != "bookworm"
    with pytest.raises(ClusterError, match="submit it again" if shows_lines else "error for job"):
        cluster.run("ctl", [*update, f"jobid={own}"], user="alice")
    cluster.run("ctl", ["scontrol", "update", f"jobid={own}", "timelimit=5"], user="alice")
    engine.stop()
    engine.start("refuse")
    with pytest.raises(ClusterError, match="unknown key" if shows_lines else "error for job"):
        cluster.run("ctl", [*update, f"jobid={own}"], user="alice")
