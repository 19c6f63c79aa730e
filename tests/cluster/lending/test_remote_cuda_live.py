"""A CUDA program on lent GPUs in a live Slurm: a vector sum and a matrix product, number by number.

No GPU is needed: the nodes have the stand-in of tests/gpu for NVIDIA's driver library, and
tests/gpu/forward.c is the middleware. With LUPINE installed, the same runs through it:

    GPUTOPO_LUPINE=/folder pytest --run all tests/cluster/lending/test_remote_cuda_live.py

The folder has lupine_driver_server, its libcuda.so.1, and of other libraries those that Debian's
base system lacks (libnghttp2.so.14).
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from lending_harness import (
    BUSY,
    FOLDER,
    borrower,
    donors,
    echoed,
    nothing_is_left,
    settings_of,
)

from slurm_cluster.cluster import Cluster, image
from slurm_cluster.hosts import until
from slurm_plugin.config import presets

pytestmark = [pytest.mark.cluster, pytest.mark.both_modes, pytest.mark.enforced]
SOURCES = Path(__file__).parents[2] / "gpu"
CUDA = f"{FOLDER}/cuda"
DRIVER = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
LUPINE = os.environ.get("GPUTOPO_LUPINE", "")
#: As a site would write them: a server that is told its address, and one that is not.
TOLD = 'name: told\nserver: [forward-server, "{port}", "{bind}"]'
EVERY = 'name: every\nserver: [forward-server, "{port}"]\nloopback: no'
SERVERS = 'environment: {FORWARD_SERVERS: "{servers}"}'


def built(suite: str, out: Path) -> None:
    """The programs of tests/gpu, compiled in the image that has a compiler."""
    mounts = ["-v", f"{SOURCES}:/src:ro", "-v", f"{out}:/out"]
    words = ["make", "-s", "-C", "/src", "OUT=/out"]
    if LUPINE:
        mounts += ["-v", f"{LUPINE}:/lupine:ro"]
        words.append("FOR=/lupine/lupine_driver_server")
    subprocess.run(
        ["docker", "run", "--rm", *mounts, image("builder", suite), *words], check=True, timeout=300
    )


@pytest.fixture(scope="module")
def programs(session_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cuda")
    built(session_cluster.suite, out)
    return out


@pytest.fixture
def cuda(lending: Cluster, programs: Path) -> Iterator[Cluster]:
    """A site that lends, whose nodes have a driver library and the middleware's server."""
    lending.put_folder("ctl", CUDA, programs)
    lending.run("ctl", ["chmod", "-R", "a+rX", CUDA])
    for node in BUSY:
        install = f"cp {CUDA}/stand-in/libcuda.so.1 {DRIVER} && ln -sf {CUDA}/forward-server"
        lending.run(node, f"{install} /usr/local/bin/ && ldconfig")
    yield lending
    for node in BUSY:
        lending.run(node, f"rm -f {DRIVER} /usr/local/bin/forward-server && ldconfig")


def script(*clients: str) -> str:
    """A job that runs the program with each of these folders before the driver's."""
    runs = "; ".join(f"LD_LIBRARY_PATH={folder} {CUDA}/job 5000" for folder in clients)
    return f"f=$HOME/echo.$SLURM_JOB_ID; {{ {runs}; }} >$f.tmp 2>&1; mv $f.tmp $f; sleep 600"


def shown(cluster: Cluster, jobid: int) -> list[str]:
    """The GPUs on which the numbers were right, in the order in which the program saw them."""
    lines = [json.loads(line) for line in echoed(cluster, jobid, 90)]
    assert all((line["sum"], line["product"]) == (5000, 64) for line in lines)
    return [line["name"] for line in lines]


def gpus_of(where: dict[str, tuple[int, ...]]) -> list[str]:
    return [f"stand-in {gpu} of {node}" for node, gpus in where.items() for gpu in gpus]


def runs_on_lent_gpus(cluster: Cluster) -> None:
    job = borrower(cluster, script=script(f"{CUDA}/forward", "''"))
    [donor] = donors(cluster)
    assert shown(cluster, job.id) == [*gpus_of(donor.gpus), *gpus_of(job.gpus)]
    cluster.cancel(job.id)
    nothing_is_left(cluster)
    for node in BUSY:
        until(lambda node=node: not servers(cluster, node), f"no server is left on {node}", 30)


def servers(cluster: Cluster, node: str) -> str:
    return cluster.run(node, ["pgrep", "-u", "alice", "-af", "forward-server"], check=False).out


@pytest.mark.both_modes("short")
def test_a_cuda_program_computes_on_its_own_gpus_and_on_lent_ones(cuda):
    cuda.put("ctl", "/etc/slurm/told.yaml", f"{TOLD}\n{SERVERS}")
    with settings_of(cuda, "preset: told.yaml"):
        runs_on_lent_gpus(cuda)


@pytest.mark.slots
@pytest.mark.long("about the nodes' side alone")
def test_a_server_on_every_address_lends_from_a_network_of_its_own(cuda):
    if cuda.run("dgx1", ["unshare", "--user", "--net", "true"], user="alice", check=False).code:
        pytest.skip("users of these containers get no network namespaces")
    cuda.put("ctl", "/etc/slurm/every.yaml", f"{EVERY}\n{SERVERS}")
    with settings_of(cuda, "preset: every.yaml"):
        runs_on_lent_gpus(cuda)


@pytest.fixture
def lupine(cuda: Cluster) -> Iterator[Cluster]:
    """The installed LUPINE on the nodes."""
    if not LUPINE:
        pytest.skip("GPUTOPO_LUPINE names no folder with LUPINE's server and client")
    cuda.put_folder("ctl", f"{CUDA}/lupine", Path(LUPINE))
    cuda.run("ctl", ["chmod", "-R", "a+rX", CUDA])
    besides = f"$(cd {CUDA}/lupine; ls *.so.* | grep -v libcuda)"
    for node in BUSY:
        server = f"ln -sf {CUDA}/lupine/lupine_driver_server /usr/local/bin/"
        libraries = f"for lib in {besides}; do ln -sf {CUDA}/lupine/$lib /usr/local/lib/; done"
        cuda.run(node, f"{server}; {libraries}; ldconfig")
    yield cuda
    for node in BUSY:
        files = f"for lib in {besides}; do rm -f /usr/local/lib/$lib; done"
        cuda.run(node, f"rm -f /usr/local/bin/lupine_driver_server; {files}; ldconfig")


def through_lupine(cluster: Cluster) -> None:
    job = borrower(cluster, script=script(f"{CUDA}/client"))
    [donor] = donors(cluster)
    lines = [line for line in echoed(cluster, job.id, 90) if line.startswith("{")]
    assert [json.loads(line)["name"] for line in lines] == [
        *gpus_of(job.gpus),
        *gpus_of(donor.gpus),
    ], echoed(cluster, job.id)
    cluster.cancel(job.id)
    nothing_is_left(cluster)


@pytest.mark.parametrize("loopback", [True, False], ids=["relayed", "own-network"])
def test_lupine_shows_a_job_its_own_gpus_and_then_lent_ones(lupine, loopback):
    """`relayed`: as if its server could be told an address, where nodes allow no namespaces."""
    lupine.run("ctl", f"mkdir -p {CUDA}/client; cp {CUDA}/lupine/libcuda.so.1 {CUDA}/client/")
    text = (presets.FOLDER / "lupine.yaml").read_text()
    assert "loopback: no\n" in text
    if loopback:
        text = text.replace("loopback: no\n", "").replace("[env,", '[env, "BIND={bind}",')
    elif lupine.run("dgx1", ["unshare", "--user", "--net", "true"], user="alice", check=False).code:
        pytest.skip("users of these containers get no network namespaces")
    lupine.put("ctl", "/etc/slurm/installed.yaml", text)
    with settings_of(lupine, "preset: installed.yaml"):
        through_lupine(lupine)
