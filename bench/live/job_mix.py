"""A seeded mix of ordinary GPU jobs, as sbatch arguments: every way to ask for GPUs."""

from __future__ import annotations

import shlex
from random import Random

HINTS = ("pattern=ring", "pattern=tree", "sensitive=no", "policy=mapa-preserve")


def _shape(rng: Random, partition: str) -> list[str]:
    """How many GPUs, in one of the forms users write."""
    gpus = rng.randint(1, 5)
    forms = [
        [f"--gres=gpu:{gpus}"],
        [f"--gpus={gpus}"],
        [f"--gpus-per-node={rng.randint(1, 4)}", "-N1"],
        [f"--gpus-per-node={rng.randint(1, 4)}", "-N2"],
        ["--gpus-per-task=1", f"-n{gpus}", "-N1"],
        [f"--gres=gpu:{gpus}", "--array=0-2"],
    ]
    return [*rng.choice(forms), "-p", partition]


def mix(count: int, rng: Random, partitions: tuple[str, ...]) -> list[list[str]]:
    """The arguments of `count` submits; one in four carries a placement hint."""
    jobs = []
    for _ in range(count):
        args = _shape(rng, rng.choice(partitions))
        if rng.random() < 0.25:
            args.append(f"--comment=gpu-topo: {rng.choice(HINTS)}")
        jobs.append(args)
    return jobs


def script(jobs: list[list[str]], rng: Random, longest_s: float) -> str:
    """A bash script that submits the jobs; each sleeps up to `longest_s`."""
    lines = []
    for args in jobs:
        wrap = f"sleep {rng.uniform(0, longest_s):.2f}"
        lines.append(shlex.join(["sbatch", "-Q", "-o", "/dev/null", *args, "--wrap", wrap]))
    return "\n".join(lines)
