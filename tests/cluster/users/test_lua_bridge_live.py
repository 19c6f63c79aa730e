"""The Lua bridge in a live slurmctld, with a stand-in for the engine that can misbehave."""

import time
from collections.abc import Iterator

import pytest
from modes import enforcement
from select_harness import BRIDGE_SETTINGS, FakeEngine, scripted_for_bridge

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import ClusterError, CommandResult, until

pytestmark = [pytest.mark.cluster, pytest.mark.both_modes]

BRACKET = "[gpu-topo: pattern=ring]"
HINT = "--comment=gpu-topo: pattern=ring"
ENGINES_LINE = "gpu-topo: unknown key 'patern', allowed: all"
_ACCEPTED = "set.admin_comment=[gpu-topo:%20pattern=ring] env.GPUTOPO_LIVE_TEST=from%20the%20engine"
#: Rules of the scripted engine.
ACCEPTS = {"do": "pass", "submit": f"ok id=%ID% {_ACCEPTED}"}
REFUSES = {"do": "pass", "submit": f"refuse id=%ID% message={ENGINES_LINE.replace(' ', '%20')}"}
#: Deadlines that a busy test machine can meet, and no bound of slurmctld's time.
PATIENT = "deadline_ms=500\nlocked_deadline_ms=500\nbudget_ms=1000\n"
_touched = 0


@pytest.fixture(scope="module")
def scripted(session_cluster: Cluster) -> Iterator[FakeEngine]:
    """The scripted engine in place of the real one; the bridge waits a little longer for it."""
    with scripted_for_bridge(session_cluster, PATIENT) as fake:
        yield fake


@pytest.fixture
def engine(cluster: Cluster, scripted: FakeEngine) -> Iterator[FakeEngine]:
    """It answers `pass` until a test gives it a rule; the bridge has no pause from before."""
    scripted.ready()
    reload_script(cluster)
    yield scripted
    scripted.signal("CONT")


def reload_script(cluster: Cluster) -> None:
    # slurmctld loads a script again when its time, in whole seconds, is later than before.
    global _touched
    _touched = max(_touched, int(time.time())) + 1
    cluster.run("ctl", ["touch", "-d", f"@{_touched}", "/etc/slurm/job_submit.lua"])


def requests(engine: FakeEngine) -> list[str]:
    """The submits that it was asked about so far, without their ids."""
    lines = engine.lines("submit")
    return [" ".join(w for w in line.split(" ") if not w.startswith("id=")) for line in lines]


def submit(cluster: Cluster, *args: str, tool: str = "sbatch") -> CommandResult:
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


def test_every_way_to_ask_gives_the_same_request(cluster, engine):
    """sbatch, srun and salloc; --gres, --gpus, --gpus-per-node and --gpus-per-task."""
    tools = ("sbatch", "srun", "salloc")
    for tool in tools:
        for args in ONE_JOB:
            assert submit(cluster, *args, tool=tool).code == 0
    lines = requests(engine)
    # On 22.05 srun and salloc can have no slots, and without a hint there is nothing to ask.
    asked = tools[:1] if enforcement() == "slots" and cluster.release < (23, 2) else tools
    assert len(lines) == len(asked) * len(ONE_JOB)
    bounded = [line for line in lines if " max_nodes=1 " in line]
    assert 0 < len(bounded) < len(lines), "-N1 is told, and no bound where there is none"
    assert {in_every_mode(line).replace(" max_nodes=1", "") for line in lines} == {
        "submit uid=2001 account=research partition=gpu gpus=2 nodes=1 per_node=2 tasks=1"
    }
    for args in TWO_NODE_JOB:
        assert submit(cluster, "-p", "dgx", *args).code == 0
    assert set(map(in_every_mode, requests(engine)[len(lines) :])) == {
        "submit uid=2001 account=research partition=dgx gpus=8 type=v100 nodes=2 max_nodes=2"
        " per_node=4 tasks=2"
    }


def test_a_good_reply_reaches_the_job(cluster, engine):
    """Bracket and environment of a batch job; an array is one request; the user's comment stays."""
    engine.rule(**ACCEPTS)
    jobid = cluster.sbatch("--gres=gpu:1", HINT)
    assert cluster.job(jobid).fields["AdminComment"] == BRACKET
    assert cluster.env_of(jobid)["GPUTOPO_LIVE_TEST"] == "from the engine"
    array = cluster.sbatch("--array=0-3", "--gres=gpu:1", HINT)
    assert {job.fields["AdminComment"] for job in cluster.jobs(array)} == {BRACKET}
    assert len(requests(engine)) == 2
    assert submit(cluster, "--gres=gpu:1", tool="srun").code == 0


def test_a_heterogeneous_job_is_asked_about_per_component(cluster, engine):
    """The component without GPUs is let through although it carries the hint."""
    engine.rule(**ACCEPTS)
    components = [HINT, "-n1", ":", HINT, "--gres=gpu:1", ":", HINT, "--gpus=2"]
    command = ["sbatch", "--parsable", "-o", "/dev/null", *components, "--wrap", "true"]
    done = cluster.run("ctl", command, user="alice")
    comments = [job.fields.get("AdminComment") for job in cluster.jobs(int(done.out))]
    assert comments == [None, BRACKET, BRACKET]
    assert len(requests(engine)) == 2


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


def test_a_sites_own_script_and_what_it_writes_are_kept(cluster, engine):
    """The site's script calls the bridge; its admin comment stays, an older bracket goes."""
    script = cluster.run("ctl", "readlink -f /etc/slurm/job_submit.lua").out
    try:
        site_script = SITE_SCRIPT.replace("MODULES", script.rpartition("/")[0])
        cluster.put("ctl", "/etc/slurm/job_submit.lua", site_script)
        engine.rule(**ACCEPTS)
        reload_script(cluster)
        jobid = cluster.sbatch("--gres=gpu:1", HINT)
        assert cluster.job(jobid).fields["AdminComment"] == f"budget 7 {BRACKET}"
        jobid = cluster.sbatch("-n1")
        assert cluster.job(jobid).fields["AdminComment"] == "budget 7"
    finally:
        # Puts the project's own script back.
        cluster.restart_slurmctld()


@pytest.mark.parametrize(
    "behaviour", ["silence", "garbage", "half", "close", "huge", "stopped", "dead", "gone"]
)
def test_the_job_runs_when_the_engine_is(cluster, engine, behaviour):
    """Whatever the engine does, the job is accepted and ends well; the log has one line."""
    if behaviour == "stopped":
        engine.signal("STOP")
    elif behaviour == "dead":
        engine.signal("KILL")
    elif behaviour == "gone":
        engine.stop()
    else:
        engine.rule(do="pass", submit_is=behaviour)
    with cluster.slurmctld_log_of() as log:
        ids = [cluster.sbatch("--gres=gpu:1", HINT) for _ in range(3)]
    for jobid in ids:
        assert cluster.wait_finished(jobid).state == "COMPLETED"
    assert sum("lua: gputopo: no answer" in line for line in log) == 1


def test_the_log_tells_when_the_engine_is_back(cluster, engine):
    """An engine restarted during the pause is used again after it, without touching slurmctld."""
    engine.stop()
    assert submit(cluster, "--gres=gpu:1").code == 0
    engine.rule(**ACCEPTS)
    engine.start()
    with cluster.slurmctld_log_of() as log:
        until(
            lambda: cluster.job(cluster.sbatch("--gres=gpu:1")).admin_comment == BRACKET,
            "the engine is asked again",
            12,
        )
    assert sum("lua: gputopo:" in line and "answers again" in line for line in log) == 1


@pytest.fixture
def frugal(cluster: Cluster, engine: FakeEngine) -> Iterator[FakeEngine]:
    """Slow answers, and a bridge that has the time for three of them."""
    patient = cluster.read("ctl", BRIDGE_SETTINGS)
    frugal = patient.replace(PATIENT, "deadline_ms=1000\nbudget_ms=1\n")
    cluster.put("ctl", BRIDGE_SETTINGS, frugal)
    reload_script(cluster)
    engine.rule(do="pass", submit_ms=400)
    yield engine
    cluster.engine("stop")
    cluster.put("ctl", BRIDGE_SETTINGS, patient)
    engine.ready()


def test_submits_go_on_beside_a_slow_engine_and_the_status_counts_them(cluster, frugal):
    with cluster.slurmctld_log_of() as log:
        for _ in range(10):
            cluster.sbatch("-H", "--gres=gpu:1")
    asked = len(requests(frugal))
    assert 2 <= asked <= 3
    assert sum("budget_ms (1 of each second) is used up" in line for line in log) == 1
    frugal.stop()
    cluster.engine("start")
    # Another user has a share of his own, and so the engine hears of it.
    cluster.sbatch("-H", "--gres=gpu:1", user="bob")
    told = f"{10 - asked} submits and updates passed unasked: the bridge's budget_ms was used up"
    assert told in cluster.run("ctl", ["gputopo", "status"]).out


def test_a_changed_hint_is_checked_too(cluster, engine):
    """scontrol update comment=...: refused with the engine's line, or applied for root."""
    engine.rule(**ACCEPTS)
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
    engine.rule(**REFUSES)
    engine.start()
    with pytest.raises(ClusterError, match="unknown key" if shows_lines else "error for job"):
        cluster.run("ctl", [*update, f"jobid={own}"], user="alice")
