"""Doctor, status, explain and collect on a live Slurm, with hardware that changes under them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from live_harness import CONFIG, explained, got_by
from modes import enforcement
from select_harness import stock_pair, told_stock_pair

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import CommandResult, until

pytestmark = [pytest.mark.cluster, pytest.mark.both_modes]


def gputopo(cluster: Cluster, *args: str, check: bool = True) -> CommandResult:
    return cluster.run("ctl", ["gputopo", *args], check=check, timeout_s=120)


def doctor(cluster: Cluster) -> list[dict[str, Any]]:
    """What doctor finds wrong."""
    done = gputopo(cluster, "doctor", "--json", check=False)
    output = json.loads(done.out)
    assert done.code == (0 if output["ok"] else 1)
    return [finding for finding in output["findings"] if finding["level"] == "fail"]


def status(cluster: Cluster) -> dict[str, Any]:
    output = json.loads(gputopo(cluster, "status", "--json").out)
    assert isinstance(output, dict)
    return output


def collect(cluster: Cluster, *args: str) -> dict[str, tuple[str, str]]:
    """What happened to each node: (word, details)."""
    done = gputopo(cluster, "topology", "collect", *args, "--json", check=False)
    output = json.loads(done.out)
    assert output["engine"] == "the engine reloaded"
    result = {row["node"]: (row["what"], row["text"]) for row in output["nodes"]}
    bad = any(what in ("changed", "failed") for what, _ in result.values())
    assert done.code == int(bad), done.err
    return result


@pytest.fixture
def clean(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster whose engine has collected nothing; so it is left behind, too."""
    yield cluster
    left = f"/var/lib/gputopo/topologies /etc/slurm/gputopo.disable {CONFIG}.kept"
    if cluster.run("ctl", f"ls -d {left} 2>/dev/null", check=False).out:
        cluster.run("ctl", f"[ ! -e {CONFIG}.kept ] || mv {CONFIG}.kept {CONFIG}; rm -rf {left}")
        cluster.engine("restart")


def configure(cluster: Cluster, old: str, new: str) -> None:
    text = cluster.read("ctl", CONFIG)
    assert old in text
    cluster.run("ctl", f"[ -e {CONFIG}.kept ] || cp -p {CONFIG} {CONFIG}.kept")
    cluster.put("ctl", CONFIG, text.replace(old, new))
    cluster.run("ctl", "kill -HUP $(clusterctl engine pid)")


@pytest.mark.enforced
def test_doctor_has_nothing_to_fix_on_a_whole_installation(clean):
    assert doctor(clean) == []


@pytest.mark.enforced
@pytest.mark.long("a detail of what a shorter test shows")
def test_doctor_names_a_stopped_engine_and_jobs_run_without_it(clean):
    clean.engine("stop")
    assert {finding["check"] for finding in doctor(clean)} == {"socket", "engine"}
    down = gputopo(clean, "status", check=False)
    assert down.code == 2
    assert "the engine is not running" in down.err
    assert got_by(clean, "-w", "dgx1", "--gres=gpu:2") == stock_pair(clean)


@pytest.mark.enforced
def test_doctor_names_the_kill_switch_and_jobs_get_slurms_own_choice(clean):
    clean.run("ctl", "touch /etc/slurm/gputopo.disable")
    assert [finding["check"] for finding in doctor(clean)] == ["kill switch"]
    job = clean.started("-w", "dgx1", "--gres=gpu:2", sleep_s=60)
    assert job.gpus == stock_pair(clean)


@pytest.mark.enforced
@pytest.mark.long("a detail of what a shorter test shows")
def test_doctor_names_stock_slurm(clean):
    with clean.variant_as("stock"):
        assert {finding["check"] for finding in doctor(clean)} == {"bridge", "select plugin"}


@pytest.mark.enforced
def test_status_and_explain_tell_what_slurm_did(clean):
    jobid = clean.sbatch("-w", "dgx1", "--gres=gpu:2", sleep_s=60)
    (gpus,) = clean.wait_running(jobid).gpus.values()
    clean.wait_reconciled()
    output = status(clean)
    asked, reply = ("submit", "ok") if enforcement() == "slots" else ("place", "use")
    assert output["replies"][reply] >= 1
    assert output["answer_ms"][asked]["p99"] < output["uptime_s"] * 1e3
    record = explained(clean, jobid)
    assert tuple(sorted(record["chosen"]["gpus"]["dgx1"])) == gpus
    slurms = told_stock_pair(clean)
    assert record["slurm"]["gpus"] == slurms
    ours_is_better = record["chosen"]["effbw_gbps"] > record["slurm"]["effbw_gbps"]
    assert ours_is_better == (slurms["dgx1"] != list(gpus))


@pytest.mark.enforced
def test_every_node_is_collected_without_files_on_it_and_twice_is_no_change(clean):
    first = collect(clean)
    assert {node: what for node, (what, _) in first.items()} == dict.fromkeys(
        ("amd1", "bridged1", "dgx1", "dgx2", "minsky1"), "new"
    )
    assert {what for what, _ in collect(clean).values()} == {"same"}
    assert doctor(clean) == []


@pytest.mark.enforced
def test_an_amd_node_is_the_same_by_amd_smi_and_without_it_by_rocm_smi(clean):
    what, text = collect(clean, "amd1")["amd1"]
    assert what == "new"
    assert "AMD Instinct MI250X" in text
    kind = f"/var/lib/gputopo/topologies/kinds/{text.split(', ')[-1]}.json"
    assert json.loads(clean.read("ctl", kind))["source"].startswith("amd-smi topology")
    with clean.fake_tools_of("amd1") as folder:
        clean.run("amd1", f"rm -r {folder}/amd-smi")
        assert collect(clean, "amd1")["amd1"][0] == "same"
        clean.run("amd1", f"rm -r {folder}/rocm-smi")
        what, text = collect(clean, "amd1")["amd1"]
        assert (what, text) == (
            "failed",
            "amd1: none of nvidia-smi, amd-smi, rocm-smi and xpu-smi is installed there",
        )


@pytest.mark.long("a detail of what a shorter test shows")
def test_a_busy_node_is_collected_while_its_gpus_are_in_use(clean):
    clean.occupy("minsky1", range(4))
    assert collect(clean, "minsky1")["minsky1"][0] == "new"


@pytest.mark.enforced
def test_changed_hardware_leaves_the_node_to_slurm_until_it_is_repaired(clean):
    collect(clean, "minsky1")
    with clean.fake_tools_of("minsky1") as folder:
        # The NVLink between GPU0 and GPU1 is gone, in both rows of the matrix.
        topo = f"{folder}/nvidia-smi/topo-m.txt"
        clean.run("minsky1", f"sed -i '/^GPU0/s/NV2/SYS/; /^GPU1/s/NV2/SYS/' {topo}")
        what, text = collect(clean, "minsky1")["minsky1"]
        assert what == "changed"
        assert text.startswith("GPU0 and GPU1: expected NV2, found SYS")
        (finding,) = doctor(clean)
        assert finding["text"].startswith("minsky1 is left to Slurm: its hardware is not")
        assert "minsky1" in status(clean)["nodes_left_to_slurm"]
        passed = status(clean)["passes"].get("node left to Slurm", 0)
        got_by(clean, "-w", "minsky1", "--gres=gpu:2")
        if enforcement() == "select":
            assert status(clean)["passes"]["node left to Slurm"] > passed
        # The others are decided as before.
        assert got_by(clean, "-w", "dgx1", "--gres=gpu:2") == {"dgx1": (0, 3)}
    assert collect(clean, "minsky1")["minsky1"][0] == "same"
    assert doctor(clean) == []


@pytest.mark.enforced
def test_nodes_that_nvlink_joins_are_told_of_before_and_after_a_job_has_them(clean):
    rack, two = "dc6e40c4-d722-4357-9ba6-5291dd461278", ("-w", "dgx[1-2]", "-N2", "--gres=gpu:2")
    with clean.fake_tools_of("dgx1") as folder, clean.fake_tools_of("dgx2"):
        for node in ("dgx1", "dgx2"):
            clean.run(node, f"echo 7 {rack} >{folder}/nvidia-smi/fabric")
        collect(clean, "dgx1", "dgx2")
        assert "2 nodes are in 1 NVLink domain" in gputopo(clean, "doctor", check=False).out
        joined = f"its nodes are of one NVLink domain, {rack}.7"
        assert joined in clean.run("ctl", ["gputopo", "try", *two], user="alice").out
        job = clean.started(*two, sleep_s=60)
        assert explained(clean, job.id)["nvlink"] == joined
        clean.cancel(job.id)
        clean.wait_idle()
        clean.run("dgx2", f"echo 8 {rack} >{folder}/nvidia-smi/fabric")
        assert collect(clean, "dgx2")["dgx2"][0] == "same"
        found = gputopo(clean, "doctor", check=False).out
        assert "2 nodes are in 2 NVLink domains, and Slurm knows no blocks" in found
        apart = f"its nodes are of no one NVLink domain: dgx1 in {rack}.7; dgx2 in {rack}.8"
        assert apart in clean.run("ctl", ["gputopo", "try", *two], user="alice").out


@pytest.mark.long("a detail of what a shorter test shows")
def test_a_lost_gpu_is_a_failed_collection_that_says_so(clean):
    with clean.fake_tools_of("minsky1") as folder:
        clean.run("minsky1", f"echo 'Unable to determine the device handle' >{folder}/fail")
        what, text = collect(clean, "minsky1")["minsky1"]
    assert what == "failed"
    assert "Unable to determine the device handle" in text


@pytest.mark.enforced
@pytest.mark.long("a detail of what a shorter test shows")
def test_minors_that_contradict_the_stated_mapping_are_refused(clean):
    with clean.fake_tools_of("minsky1") as folder:
        clean.run("minsky1", f"echo 0,2,1,3 >{folder}/minors")
        clean.run("ctl", "ln -sf /cluster/gres.conf /etc/slurm/gres.conf")
        collect(clean, "minsky1")
        (finding,) = doctor(clean)
        assert "slurm_index says [0, 1, 2, 3], but the device minors" in finding["text"]
        assert "say [0, 2, 1, 3]" in finding["text"]


@pytest.mark.enforced
def test_permuted_minors_are_followed_by_gres_conf(clean):
    configure(
        clean,
        '{nodes: "minsky1", topology: minsky, slurm_index: identity}',
        '{nodes: "minsky1", topology: collected, slurm_index: gres-conf}',
    )
    with clean.fake_tools_of("minsky1") as folder:
        clean.run("minsky1", f"echo 0,2,1,3 >{folder}/minors")
        collect(clean, "minsky1")
        assert doctor(clean) == []
        # NVLink joins the tools' GPUs 0 and 1, which are /dev/fakegpu0 and /dev/fakegpu2.
        pair = got_by(clean, "-w", "minsky1", "--gres=gpu:2")["minsky1"]
        assert pair in ((0, 2), (1, 3))


@pytest.mark.enforced
@pytest.mark.long("a detail of what a shorter test shows")
def test_a_wrong_configuration_at_reload_changes_nothing(clean):
    configure(clean, "deadline_ms: 50", "deadline_ms: soon")
    until(lambda: "is not a number" in clean.engine_log(), "it is refused")
    (finding,) = doctor(clean)
    assert "deadline_ms: 'soon' is not a number" in finding["text"]
    assert got_by(clean, "-w", "dgx1", "--gres=gpu:2") == {"dgx1": (0, 3)}
