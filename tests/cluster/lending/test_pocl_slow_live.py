"""PoCL-Remote behind a slow network, and one that does not answer for a while.

A proxy of the tests stands in front of the donor's server: netem is not in every kernel.
"""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml
from lending_harness import FOLDER, nothing_is_left
from live_harness import CONFIG
from pocl_harness import (
    FOUR,
    PRESET,
    PRESET_KEY,
    TWO_AND_TWO,
    borrower,
    job_with,
    let_go,
    lines_of,
    pocl_nodes,
    pocl_site,
    restarts,
    writes,
)

from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from slurm_cluster.pytest_plugin import Factory
from slurm_cluster.slurm_text import Job

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

#: The servers behind a proxy of the tests, which can be as slow as a site's network.
SETTINGS = f"{FOLDER}/slow.json"
SLOW = PRESET.replace(
    "exec pocld -a {bind} -p {port}",
    "pocld -a {bind} -p $(({port}+100)) &\n"
    f"    exec python3 {FOLDER}/slow_proxy.py {{port}} $(({{port}}+100)) 2 {SETTINGS}",
)


@pytest.fixture(scope="module")
def lenders(slurm_cluster_factory: Factory) -> Iterator[Cluster]:
    """Four nodes with PoCL-Remote."""
    with pocl_nodes(slurm_cluster_factory) as cluster:
        yield cluster


@pytest.fixture
def lending(lenders: Cluster) -> Iterator[Cluster]:
    """Two GPUs of a node are free and two of another, whose server is behind the proxy."""
    with pocl_site(lenders, TWO_AND_TWO, SLOW):
        yield lenders


#: A network of another kind for each: delay on each way in ms, and MB/s.
NETWORKS = {"lent": (0, 0), "near": (0.5, 200), "far": (2, 50)}


@pytest.mark.long("two jobs and a probe on four networks, two minutes")
def test_what_was_measured_predicts_and_decides_about_a_job_that_borrows_only_where_it_gains(
    lending,
):
    """A probe on own and on lent devices; runs that the fit has not seen; the engine goes by it."""
    probe = f"python3 {FOLDER}/opencl_probe.py"
    lines = [writes(f"{probe} 0", "own"), writes(f"{probe} 0 check", "own.check")]
    for name in NETWORKS:
        lines += [f"until [ -e $out/go.{name} ]; do sleep 0.1; done", writes(f"{probe} 2", name)]
        lines.append(writes(f"{probe} 2 check", f"{name}.check"))
    twice = f"{probe} 3 jobs=2 >/dev/null & {probe} 2 jobs=2; wait"
    lines.append(writes(f"({twice})", "twice"))
    job, _ = borrower(lending, job_with(2, "; ".join(lines)))
    for name, (delay_ms, mb_s) in NETWORKS.items():
        network(lending, delay_ms=delay_ms, mb_s=mb_s)
        lending.run("ctl", "sleep 0.3")
        let_go(lending, job, f"go.{name}")
        for file in (name, f"{name}.check"):
            lines_of(lending, job, file)
    files = {name: lines_of(lending, job, name) for name in ("own", *NETWORKS)}
    files["far"] += lines_of(lending, job, "twice")
    for name, told in files.items():
        lending.put("ctl", f"/etc/slurm/{name}.lines", "".join(f"{line}\n" for line in told))
    checks = {name: lines_of(lending, job, f"{name}.check") for name in files}
    lending.cancel(job.id)
    nothing_is_left(lending, TWO_AND_TWO)
    found = {name: measured_by(lending, name) for name in NETWORKS}
    off = {"own": predicted("own", checks["own"], found["lent"]["local"])}
    off |= {name: predicted(name, checks[name], found[name]["remote"]) for name in NETWORKS}
    # What processors do takes as long as other work on them lets it; what the network does is set.
    assert max(off["near"], off["far"]) < 0.6, off
    calls = [found[name]["remote"]["call_s"] for name in NETWORKS]
    # A call goes there and back: twice the delay, and the middleware's own on top.
    assert calls[0] + 0.003 < calls[2] < calls[0] + 0.03, calls
    assert found["lent"]["local"]["call_s"] < calls[0] < 0.1
    assert 0.7 < found["far"]["remote"]["gb_s"] / 0.05 <= 1.1
    assert found["far"]["remote"]["shared"] > 0.3, (found, "two share the network")
    auto_goes_by(lending, found["lent"])


def measured_by(cluster: Cluster, name: str) -> dict[str, Any]:
    """What `gputopo remote measure` makes of the lines of this network."""
    files = f"own.lines {name}.lines --preset pocl-fake --out {name}.yaml"
    said = cluster.run("ctl", f"cd /etc/slurm; gputopo remote measure {files} --where {name}").out
    print(f"{name}: {said}")
    found: dict[str, Any] = yaml.safe_load(cluster.read("ctl", f"/etc/slurm/{name}.yaml"))
    print(json.dumps(found))
    return found


def predicted(name: str, checks: list[str], side: Mapping[str, float]) -> float:
    """By how much the median of these runs is off, as a share; each is printed."""
    off = []
    for text in checks:
        run = json.loads(text)
        seconds = run["calls"] * side["call_s"] + run["gb"] / side["gb_s"]
        seconds += run["kernels"] * side["kernel_s"] + run["gpu_gb"] / side["gpu_gb_s"]
        off.append(abs(seconds / run["seconds"] - 1))
        print(f"{name}: predicted {seconds:.4f} s, measured {run['seconds']:.4f}: {off[-1]:.0%}")
    return sorted(off)[len(off) // 2]


def auto_goes_by(cluster: Cluster, found: Mapping[str, Any]) -> None:
    """The engine predicts by the file: calls, and kernels that take longer on lent GPUs."""
    own, lent = (found[side]["call_s"] for side in ("local", "remote"))
    longer = found["remote"]["kernel_s"] / found["local"]["kernel_s"]
    used = "run_s: 10000, gpu_calls: 1000000, gpu_kernel_s: 1000"
    profile = f"profile: md\nremote: {{{used}}}\n"
    cluster.put("ctl", f"{FOLDER}/profiles/md.yaml", profile)
    config = cluster.read("ctl", CONFIG)
    config = config.replace(PRESET_KEY, f"{PRESET_KEY}, measured: lent.yaml")
    cluster.put("ctl", CONFIG, f"{config}\ntopo_aware: {{profiles: {FOLDER}/profiles}}\n")
    cluster.engine("restart")
    cluster.wait_reconciled()
    auto = "--comment=gpu-topo: remote=auto,profile=md"
    job = cluster.started(*FOUR, auto, "-t", "6000", script="sleep 600", timeout_s=90)
    ends_s = 10000.0 + 1e6 * (lent - own) + 1000 * (longer - 1)
    assert f"ends in {ends_s:.0f} s instead of" in job.admin_comment


@pytest.mark.long("a minute and a half of silence")
def test_a_slow_middleware_delays_its_own_job_alone_and_the_user_is_told(lending):
    """Late and trickling, then silent, then quick: the numbers are right, nothing is put back."""
    network(lending, delay_ms=100, mb_s=2)
    waits = "until [ -e $out/go ]; do sleep 0.1; done"
    each = [writes("pocl-compute product 96", name) for name in ("late", "last")]
    script = job_with(2, f"{each[0]}; {waits}; {each[1]}")
    job, node = borrower(lending, script)
    assert len(lines_of(lending, job, "late")) == 4
    network(lending, mute=True)
    let_go(lending, job, "go")
    until(lambda: "nothing passed since" in told_of(lending, job), "its user is told", 120)
    assert f"lent          {node}: " in told_of(lending, job)
    # Neither Slurm nor the engine waits for it.
    began = time.monotonic()
    assert lending.run("ctl", "scontrol ping").out
    other = lending.started("-p", "dgx", "-n1", "--mem=10", script="sleep 600", user="mallory")
    assert lending.status()
    assert time.monotonic() - began < 20
    lending.cancel(other.id)
    network(lending)
    assert [line.split()[2] for line in lines_of(lending, job, "last")] == ["equal"] * 4
    until(lambda: "nothing passed since" not in told_of(lending, job), "it answers again", 60)
    assert restarts(lending, job) == 0


def told_of(cluster: Cluster, job: Job) -> str:
    """What the job's user is told by `gputopo explain`."""
    return cluster.run("ctl", f"gputopo explain {job.id}", user="alice").out


def network(cluster: Cluster, **settings: float) -> None:
    """How slow the proxies are from now on."""
    text = json.dumps({"delay_ms": 0, "mb_s": 0, "mute": False, **settings})
    cluster.put("ctl", SETTINGS, text)
    cluster.run("ctl", f"chmod a+r {SETTINGS}; sleep 0.3")
