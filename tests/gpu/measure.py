"""For whoever has an NVIDIA GPU: one CUDA job directly and through a middleware, on one machine.

    python tests/gpu/measure.py lupine --server /opt/lupine/bin/lupine_driver_server \
        --client /opt/lupine/lib

starts the preset's server, runs tests/gpu/job.c without it and through it, and prints a dated page
in Markdown. `--client` is the folder with the middleware's libcuda.so.1. Nothing is left behind.
Where something is missing (a GPU, a compiler, the server) it says so in one line and exits 1.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from slurm_plugin.base.preset import SERVER_FIELDS, Preset, Server  # noqa: E402
from slurm_plugin.config import presets  # noqa: E402
from slurm_plugin.errors import RemoteError  # noqa: E402
from tests.processes import free_port  # noqa: E402

#: What makes the client show lent GPUs alone: on one machine they are the local ones once more.
LENT_ALONE = {"lupine": {"LUPINE_DISABLE_LOCAL": "1"}}
LISTENS_S = 20.0
#: What one run of the job may take.
JOB_S = 300.0
Gpus = list[dict[str, Any]]


class Missing(Exception):
    """One line: what is missing."""


def build(out: Path) -> Path:
    """The job, compiled."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise Missing("no C compiler: cc")
    job = out / "job"
    words = [compiler, "-std=gnu11", "-O2", "-o", job, HERE / "job.c", "-ldl"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Missing(f"job.c does not compile: {_first_line(done.stderr)}")
    return job


def run(job: Path, sizes: Sequence[int], variables: Mapping[str, str]) -> Gpus:
    """What the job tells of each GPU that it sees. Raises Missing with its own words."""
    words = [str(job), *map(str, sizes)]
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **variables},
            timeout=JOB_S,
        )
    except subprocess.TimeoutExpired as error:
        raise Missing(f"the job took longer than {JOB_S:g} s") from error
    if done.returncode:
        raise Missing(_last_line(done.stderr) or f"the job ended with {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0]


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


@contextmanager
def serving(preset: Preset, program: str, port: int) -> Iterator[None]:
    """A block in which the preset's server listens at this port of 127.0.0.1."""
    values = dict.fromkeys(SERVER_FIELDS, "") | {"port": str(port), "bind": "127.0.0.1", "id": "1"}
    words = [program if word == preset.program else word for word in preset.command(values)]
    with tempfile.TemporaryFile("w+") as said:
        try:
            server = subprocess.Popen(words, stdout=said, stderr=said, stdin=subprocess.DEVNULL)
        except OSError as error:
            raise Missing(f"{words[0]}: {error.strerror}") from error
        try:
            _wait_for(server, port, said)
            yield
        finally:
            server.terminate()
            try:
                server.wait(5)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _wait_for(server: subprocess.Popen[bytes], port: int, said: Any) -> None:
    for _ in range(int(LISTENS_S / 0.1)):
        if server.poll() is not None:
            said.seek(0)
            words = _last_line(said.read()) or "it said nothing"
            raise Missing(f"the server ended (exit {server.returncode}): {words}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise Missing(f"the server did not listen at port {port} within {LISTENS_S:g} s")


def loopback_bytes() -> int:
    """Bytes that this machine's loopback device has carried so far."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name.strip() == "lo":
            return int(rest.split()[0])
    return 0


def through(
    preset: Preset, program: str, client: Path, job: Path, sizes: Sequence[int], gpus: int
) -> tuple[Gpus, int]:
    """The job through the middleware, and the bytes that crossed loopback meanwhile."""
    port = free_port()
    told = preset.client_environment([Server("127.0.0.1", port, gpus, 1)])
    told |= LENT_ALONE.get(preset.name, {})
    told["LD_LIBRARY_PATH"] = f"{client}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    with serving(preset, program, port):
        before = loopback_bytes()
        found = run(job, sizes, told)
        carried = loopback_bytes() - before
    return found, carried


def page(preset: Preset, files: Sequence[Path], direct: Gpus, lent: Gpus, carried: int) -> str:
    """The results in Markdown."""
    now = datetime.now(UTC)
    driver = direct[0]["driver"]
    names = ", ".join(gpu["name"] for gpu in direct)
    sums = (f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()[:16]}" for file in files)
    rows = [
        f"# A CUDA job directly and through {preset.name}, {now:%Y-%m-%d}",
        "",
        "| what | |",
        "|---|---|",
        f"| when, where | {now:%Y-%m-%d %H:%M} UTC, {platform.platform()}, {os.cpu_count()} CPUs |",
        f"| GPUs | {names}; driver for CUDA {driver // 1000}.{driver % 1000 // 10} |",
        f"| middleware | preset `{preset.name}`; SHA-256 of {', '.join(sums)} |",
        f"| load average | {os.getloadavg()[0]:.1f} |",
        "",
        "Server and job are on one machine: what a network adds is not in these figures.",
        "",
        "| GPU | | directly | through it | ratio |",
        "|---|---|---|---|---|",
    ]
    for one, other in zip(direct, lent, strict=True):
        rows += _rows(one, other)
    total = sum(gpu["bytes"] for gpu in lent)
    rows.append(
        f"\nThe job copied {total} bytes to and from its lent GPUs; loopback carried {carried} "
        "meanwhile, with all else that used it. Every number of sum and product was checked."
    )
    return "\n".join(rows) + "\n"


def _rows(direct: Mapping[str, Any], lent: Mapping[str, Any]) -> Iterator[str]:
    what = (
        ("s", "sum and product, ms", 1e3),
        ("call_us", "4 bytes from the GPU, µs", 1),
        ("to_gb_s", "copy to the GPU, GB/s", 1),
        ("from_gb_s", "copy from the GPU, GB/s", 1),
    )
    yield (
        f"| {direct['gpu']} | calls, bytes | {direct['calls']}, {direct['bytes']} | "
        f"{lent['calls']}, {lent['bytes']} | |"
    )
    for key, text, unit in what:
        one, other = direct[key] * unit, lent[key] * unit
        yield f"| | {text} | {one:.3g} | {other:.3g} | {other / one if one else 0:.3g} |"


def measure(words: argparse.Namespace) -> str:
    """The page. Raises Missing."""
    try:
        preset = presets.load(words.preset, Path.cwd())
    except RemoteError as error:
        raise Missing(str(error)) from error
    sizes = (words.numbers, words.calls, words.mib)
    with tempfile.TemporaryDirectory() as folder:
        job = build(Path(folder))
        try:
            # The driver keeps what it compiles of the kernels: without this run the way that is
            # measured first would pay for both.
            run(job, (1, 0, 0), {})
            direct = run(job, sizes, {})
        except Missing as error:
            raise Missing(f"no NVIDIA GPU to measure here: {error}") from error
        server, client = shutil.which(words.server or preset.program), words.client / "libcuda.so.1"
        if server is None:
            raise Missing(f"no server: {words.server or preset.program} (--server)")
        if not client.is_file():
            raise Missing(f"no client library: {client} (--client)")
        lent, carried = through(preset, server, words.client, job, sizes, len(direct))
    if [gpu["uuid"] for gpu in lent] != [gpu["uuid"] for gpu in direct]:
        raise Missing(f"through it the job saw {len(lent)} GPUs; expected the same {len(direct)}")
    return page(preset, (Path(server), client), direct, lent, carried)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("preset", help="a preset's name, or a file NAME.yaml")
    parser.add_argument("--server", default="", help="its program, where PATH has none")
    parser.add_argument("--client", type=Path, required=True, help="folder with its libcuda.so.1")
    parser.add_argument("--numbers", type=int, default=1 << 20, help="in a vector")
    parser.add_argument("--calls", type=int, default=10000, help="small calls timed")
    parser.add_argument("--mib", type=int, default=256, help="of each copy timed")
    try:
        print(measure(parser.parse_args(argv)), end="")
    except Missing as error:
        print(f"measure: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
