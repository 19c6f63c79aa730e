"""A CUDA program on GPUs of two donors, through the relay: every number right.

With the middleware of tests/gpu; and through LUPINE, by its preset, with GPUTOPO_LUPINE=/folder
(docs/remote-cuda.md).
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from paper_donor import tools
from paper_munge import PaperMunge

from slurm_plugin.base.job_notes.loan import LoanDonor
from slurm_plugin.base.preset import Preset
from slurm_plugin.config import presets
from slurm_plugin.errors import RemoteError
from slurm_plugin.node import program
from slurm_plugin.node.remote import inside, join
from slurm_plugin.node.remote.donor import Donor, DonorTask

SOURCES = Path(__file__).parents[3] / "gpu"
LUPINE = os.environ.get("GPUTOPO_LUPINE", "")
FORWARD = Preset(
    "forward",
    "",
    ("forward-server", "{port}", "{bind}"),
    environment={"FORWARD_SERVERS": "{servers}"},
)
#: Where a server listens on every address, it gets a network of its own.
EVERYWHERE = replace(FORWARD, server=FORWARD.server[:2], loopback=False)
LOW, HIGH = 47000, 47999


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with job, stand-in, middleware and the program for the nodes."""
    if not (shutil.which("cc") and shutil.which("make")):
        pytest.skip("no cc and make here")
    out = tmp_path_factory.mktemp("cuda")
    words = ["make", "-s", "-C", SOURCES, f"OUT={out}"]
    if LUPINE:
        words.append(f"FOR={LUPINE}/lupine_driver_server")
        shutil.copytree(LUPINE, out / "lupine")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    program.write(tools().folder / "gputopo-node", sys.executable)
    return out


async def job_on(built: Path, donors: list[LoanDonor], client: Path) -> tuple[int, str, str]:
    """Exit status and output of the job 7, which has met these donors."""
    munge = PaperMunge()
    variables, ends = await join.meet(7, donors, munge, tools())
    kept = asyncio.create_task(join.keep(ends, munge, os.getpid()))
    env = {**os.environ, **variables, "LD_LIBRARY_PATH": str(client)}
    job = await asyncio.create_subprocess_exec(
        built / "job", "5000", env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await asyncio.wait_for(job.communicate(), 60)
    kept.cancel()
    return job.returncode or 0, out.decode(), err.decode()


async def lent(
    built: Path, preset: Preset, client: str, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """The GPUs that the job saw, where one donor lends 1 and 5, the other 2."""
    if not preset.loopback:
        try:
            inside.check()
        except RemoteError as error:
            pytest.skip(f"no network namespaces here: {error}")
    monkeypatch.setenv("PATH", f"{built}:{built / 'lupine'}:{os.environ['PATH']}")
    libraries = f"{built / 'stand-in'}:{built / 'lupine-libraries'}"
    monkeypatch.setenv("LD_LIBRARY_PATH", libraries)
    lenders, found = [], []
    try:
        for job_id, gpus in ((71, "1,5"), (72, "2")):
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
            count = gpus.count(",") + 1
            node = str(tools().folder / "gputopo-node")
            task = DonorTask(7, job_id, count, LOW, HIGH, False, preset, node)
            lenders.append(Donor(task, PaperMunge()))
            port = await lenders[-1].open()
            found.append(LoanDonor("127.0.0.1", (1 << count) - 1, job_id, port))
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
        code, out, err = await job_on(built, found, built / client)
        assert code == 0, err
    finally:
        for lender in lenders:
            await lender.close()
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert {(line["sum"], line["product"]) for line in lines} == {(5000, 64)}
    return [line["name"].split()[1] for line in lines]


@pytest.mark.parametrize("preset", [FORWARD, EVERYWHERE], ids=["loopback", "own network"])
async def test_a_cuda_program_computes_on_the_gpus_of_two_donors(built, preset, monkeypatch):
    assert await lent(built, preset, "forward", monkeypatch) == ["1", "5", "2"]


@pytest.mark.skipif(not LUPINE, reason="GPUTOPO_LUPINE names no folder with LUPINE")
async def test_lupine_shows_local_gpus_and_then_those_of_two_donors(built, monkeypatch):
    """By the preset as it is shipped: each server in a network of its own, behind the relay."""
    monkeypatch.setenv("LUPINE_REAL_LIBCUDA", str(built / "stand-in/libcuda.so.1"))
    (built / "lupine-libraries").mkdir()
    for library in (built / "lupine").glob("*.so.*"):
        if library.name != "libcuda.so.1":
            shutil.copy(library, built / "lupine-libraries")
    found = await lent(built, presets.load("lupine"), "lupine", monkeypatch)
    assert found == ["3", "1", "5", "2"]
