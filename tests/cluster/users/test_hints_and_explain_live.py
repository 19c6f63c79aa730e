"""What users write and what they are told, on a live Slurm: hints, rules, explain, report."""

import json
from collections.abc import Iterator

import pytest
from live_harness import at_home, explained
from modes import variant
from select_harness import told_stock_pair

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import ClusterError, CommandResult, until

pytestmark = [pytest.mark.cluster, pytest.mark.both_modes]

CONFIG = "/etc/slurm/gputopo.yaml"
LISTEN = "explain_listen: ctl:9402\n"
RULES = """
accounts:
  research: {hints: {pattern: tree}}
users:
  bob: {users_may_set: [pattern, mem]}
  mallory: {mode: enforce}
"""
PAIR = ("-w", "dgx1", "--gres=gpu:2")


#: An engine with rules that listens for users.
rules = at_home(yaml=LISTEN + RULES)


@pytest.fixture
def configured(rules: None, cluster: Cluster) -> Cluster:
    """An engine that listens for users and has rules for an account and a user."""
    return cluster


def explain(cluster: Cluster, user: str, *args: str) -> CommandResult:
    return cluster.run("ctl", ["gputopo", "explain", *args], user=user, check=False)


COMMANDS = ("sbatch", "sbatch --test-only", "srun", "salloc")
#: What is wrong with the hint, the hint, and what the user reads.
REFUSED = [
    ("key", "patern=ring", "gpu-topo: unknown key 'patern'; expected one of policy, pattern"),
    ("value", "pattern=knot", "gpu-topo: pattern: 'knot'; expected ring, tree, chain"),
    ("launch value", "mem=all", "gpu-topo: mem: 'all'; expected preferred, bind, interleave"),
    ("number", "min-utility=2", "min-utility: '2'; expected a number from 0 to 1"),
    ("off", "off,pattern=ring", "off: stands alone"),
    ("line feed", "pattern=ring\nx", "control character"),
    ("escape", "pattern=ring\x1b[31m", "control character"),
    ("quotes", """pattern="ring'$(id)%41""", "pattern: "),
    ("bracket", "pattern=ring]", "hints are printable ASCII without [, ] and |"),
    ("too long", "x" * 1025, "gpu-topo: the hint is 1025 bytes long, at most 1024 are allowed"),
    ("100 kB", "pattern=" + "x" * 100_000, "bytes long, at most 1024"),
]


def refused(cluster: Cluster, command: str, *args: str) -> list[str]:
    """The lines with which a submit is refused; nothing is queued."""
    rest = ["--wrap", "true"] if command.startswith("sbatch") else ["true"]
    done = cluster.run("ctl", [*command.split(), *args, *rest], user="alice", check=False)
    assert done.code != 0
    assert cluster.run("ctl", "squeue -h -u alice").out == ""
    return done.err.splitlines()


@pytest.mark.parametrize(("hint", "says"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED])
def test_a_hint_that_is_wrong_is_refused_at_submit_with_one_line(live, hint, says):
    for command in COMMANDS if says.startswith("gpu-topo: ") else COMMANDS[:1]:
        output = refused(live, command, *PAIR, f"--comment=gpu-topo:{hint}")
        (line,) = [line for line in output if "gpu-topo" in line]
        assert says in line
        assert line.isprintable()


def test_a_hint_on_a_job_without_gpus_is_refused_with_one_line(live):
    output = refused(live, "sbatch", "--comment=gpu-topo: pattern=ring")
    assert len([line for line in output if "asks for no GPUs" in line]) == 1


@pytest.mark.parametrize(
    ("hint", "says"),
    [
        ("pattern=ring,mem=interleave", "dgx1:0,3 by mapa: ring: "),
        ("off", "Slurm's own choice: opted out by hint]"),
    ],
)
@pytest.mark.enforced
@pytest.mark.both_modes("short")
def test_admin_comment_names_gpus_policy_and_reason(cluster, hint, says):
    job = cluster.started(*PAIR, f"--comment=gpu-topo: {hint}", sleep_s=60)
    assert cluster.job(job.id).admin_comment.startswith(f"[gpu-topo: {hint} | {says}")


@pytest.mark.enforced
def test_without_the_engine_admin_comment_is_what_is_told(cluster):
    """The engine does not listen for users; then it is stopped, too."""
    jobid = cluster.started(*PAIR, sleep_s=60).id
    for _ in range(2):
        result = explained(cluster, jobid, "alice")
        assert result["source"] == "Slurm"
        assert result["note"].startswith("dgx1:0,3 by mapa: ")
        assert explain(cluster, "bob", str(jobid)).code == 2
        cluster.engine("stop")


@pytest.mark.enforced
def test_report_sums_up_what_was_gained(cluster):
    cluster.started(*PAIR, sleep_s=60)
    done = cluster.run("ctl", ["gputopo", "report", "--since", "1h", "--json"])
    summary = json.loads(done.out)
    assert summary["placed"]["jobs"] >= 1
    assert summary["placed"]["ratio_mean"] >= 1
    now = summary["now"]
    assert (now["gpus"] - now["free"], now["stranded"]) == (2, 0)
    assert cluster.run("ctl", ["gputopo", "report"], user="alice", check=False).code == 2


@pytest.mark.enforced
def test_a_user_is_held_to_their_own_limits_and_an_account_has_defaults(configured):
    with pytest.raises(ClusterError, match="min-utility: not allowed for this job; expected one"):
        configured.sbatch(*PAIR, "--comment=gpu-topo: min-utility=0.5", user="bob")
    allowed = configured.sbatch(*PAIR, "--comment=gpu-topo: mem=none", user="bob", sleep_s=60)
    free = configured.sbatch(*PAIR, "--comment=gpu-topo: min-utility=0.1", sleep_s=60)
    for jobid in (allowed, free):
        configured.wait_running(jobid)
        # Neither named an account: the default one's rule counts.
        assert explained(configured, jobid, "root")["pattern"] == "tree"


@pytest.mark.enforced
def test_a_users_mode_goes_before_the_partitions(configured):
    """Who tries it gets what is chosen where all others are only observed."""
    mine = configured.started("-p", "observe", *PAIR, sleep_s=60, user="mallory")
    assert mine.gpus == {"dgx1": (0, 3)}
    other = configured.started("-p", "observe", "-w", "dgx2", "--gres=gpu:2", sleep_s=60)
    assert other.gpus == {"dgx2": (0, 1)}
    assert "gpu-topo" not in configured.job(other.id).admin_comment


@pytest.mark.enforced
def test_the_owner_is_told_everything_and_a_stranger_nothing(configured):
    jobid = configured.started(*PAIR, sleep_s=60).id
    configured.wait_reconciled()
    mine = explained(configured, jobid, "alice")
    assert mine["source"] == "engine"
    assert sorted(mine["chosen"]["gpus"]["dgx1"]) == [0, 3]
    assert mine["slurm"]["gpus"] == told_stock_pair(configured)
    assert mine["started"]["gpus"] == {"dgx1": [0, 3]}
    assert mine["state"] == "RUNNING"
    assert mine["candidates"]
    strangers = explain(configured, "bob", str(jobid))
    nobodys = explain(configured, "bob", "999999")
    assert strangers.code == nobodys.code == 2
    assert strangers.err.replace(str(jobid), "N") == nobodys.err.replace("999999", "N")
    assert strangers.err.count("\n") == 1
    assert explained(configured, jobid, "root")["source"] == "decision log"


@pytest.mark.enforced
def test_finished_jobs_and_arrays_are_explained_after_a_restart_of_the_engine(configured):
    # Until the engine has seen who they are it cannot write down what it decided for each.
    script = "until [ -e $HOME/go ]; do sleep 0.1; done"
    configured.run("ctl", "rm -f /home/alice/go")
    jobid = configured.sbatch(*PAIR, "--array=0-2", script=script)
    until(lambda: {job.state for job in configured.jobs(jobid)} == {"RUNNING"}, "all run", 60)
    configured.wait_reconciled()
    configured.run("ctl", "touch /home/alice/go")
    configured.wait_idle()
    configured.engine("restart")
    result = explained(configured, jobid, "alice")
    assert len(result["tasks"]) == 2
    one = explained(configured, f"{jobid}_1", "alice")
    assert one["array"] == jobid
    assert "COMPLETED" in one["state"]


def test_a_pending_job_that_was_never_decided_is_told_by_slurm(configured):
    jobid = configured.sbatch(*PAIR, "--hold", "--comment=gpu-topo: pattern=tree")
    for user in ("alice", "root"):
        result = explained(configured, jobid, user)
        assert "PENDING" in result["state"]
        assert result["hint"] == "pattern=tree"
        assert result["remark"] == "nothing was decided yet"


@pytest.mark.enforced
@pytest.mark.both_modes("short")
def test_a_job_that_waits_says_why_and_what_it_would_get(configured):
    configured.occupy("dgx1", [0, 1, 2, 4, 6, 7])
    jobid = configured.sbatch(*PAIR, "--comment=gpu-topo: min-utility=0.95", sleep_s=60)
    configured.wait_state(jobid, "PENDING")

    def waits() -> bool:
        done = explain(configured, "alice", str(jobid), "--json")
        return not done.code and json.loads(done.out).get("decision") == "wait"

    until(waits, "the decision is written down")
    result = explained(configured, jobid, "alice")
    assert "of the bandwidth of the best GPUs" in result["note"]
    assert result["chosen"]["gpus"] == {"dgx1": [3, 5]}
    assert "postponed" in explain(configured, "alice", str(jobid)).out


@pytest.fixture(scope="module")
def option(session_cluster: Cluster) -> Iterator[None]:
    """From here on a reset leads to the variant with the SPANK plugin."""
    with session_cluster.at_home(variant=f"{variant()}-launch"):
        yield


@pytest.fixture
def with_option(option: None, live: Cluster) -> Cluster:
    """A cluster on which the SPANK plugin gives users --gpu-topo."""
    if "--gpu-topo" not in live.run("ctl", ["srun", "--help"], check=False).out:
        pytest.skip("the image has no SPANK plugin for this release")
    return live


@pytest.mark.enforced
def test_the_option_means_the_same_as_the_comment(with_option, cluster):
    by_option = with_option.sbatch(*PAIR, "--gpu-topo=pattern=tree,mem=none", sleep_s=60)
    by_comment = with_option.sbatch(
        "-w", "dgx2", "--gres=gpu:2", "--comment=gpu-topo: pattern=tree,mem=none", sleep_s=60
    )
    notes = []
    for jobid in (by_option, by_comment):
        with_option.wait_running(jobid)
        with_option.wait_reconciled()
        note, _, _ = with_option.job(jobid).admin_comment.partition("]")
        notes.append(note.replace("dgx2", "dgx1"))
        assert explained(with_option, jobid, "root")["pattern"] == "tree"
    assert notes[0] == notes[1]
    assert notes[0].startswith("[gpu-topo: pattern=tree,mem=none | dgx1:")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((*PAIR, "--gpu-topo=patern=ring"), "unknown key 'patern'; expected one of policy"),
        ((*PAIR, "--gpu-topo=mem=all"), "mem: 'all'; expected preferred, bind"),
        (("-n1", "--gpu-topo=pattern=ring"), "this job asks for no GPUs"),
        (
            (*PAIR, "--gpu-topo=pattern=ring", "--comment=gpu-topo: pattern=tree"),
            "--gpu-topo says 'pattern=ring' and --comment says 'pattern=tree'; give the hint once",
        ),
        ((*PAIR, f"--gpu-topo={'x' * 1025}"), "longer than 1024"),
        ((*PAIR, "--gpu-topo=a\tb"), "control character"),
    ],
    ids=["unknown key", "bad value", "no GPUs", "contradiction", "too long", "tab"],
)
def test_an_option_that_is_wrong_is_refused_with_one_line(with_option, args, says):
    for command in COMMANDS:
        output = refused(with_option, command, *args)
        assert len([line for line in output if says in line]) == 1


@pytest.mark.select_plugin
@pytest.mark.long("a detail of what a shorter test shows")
def test_an_option_is_kept_for_the_start_when_the_engine_is_away_at_submit(with_option, cluster):
    with_option.engine("stop")
    jobid = with_option.sbatch(*PAIR, "--hold", "--gpu-topo=pattern=tree", sleep_s=60)
    assert with_option.job(jobid).admin_comment == "[gpu-topo: pattern=tree]"
    with_option.engine("start")
    with_option.run("ctl", ["scontrol", "release", str(jobid)])
    with_option.wait_running(jobid)
    with_option.wait_reconciled()
    assert explained(with_option, jobid, "root")["pattern"] == "tree"
