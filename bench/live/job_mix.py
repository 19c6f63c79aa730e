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


def tasks(args: list[str]) -> int:
    """How many jobs one submit makes: an array's tasks."""
    return 3 if "--array=0-2" in args else 1


def script(
    jobs: list[list[str]], rng: Random, longest_s: float, commands: tuple[str, ...] = ("sbatch",)
) -> str:
    """A bash script that submits the jobs by these commands; each sleeps up to `longest_s`.

    srun and salloc wait for their job, so they run beside what follows, sixteen at a time.
    """
    lines, beside = [], 0
    for args in jobs:
        nap = f"sleep {rng.uniform(0, longest_s):.2f}"
        command = "sbatch" if tasks(args) > 1 else rng.choice(commands)
        if command == "sbatch":
            lines.append(shlex.join(["sbatch", "-Q", "-o", "/dev/null", *args, "--wrap", nap]))
            continue
        lines.append(f"{shlex.join([command, '-Q', *args])} {nap} &")
        beside += 1
        if beside % 16 == 0:
            lines.append("wait")
    return "\n".join([*lines, "wait"])
