"""What slurmctld_times.c notes while slurmctld runs: its write locks, and its selections.

slurmctld is started with that library preloaded, whatever select plugin it has, so that both
sides of a comparison are measured by the same clock at the same places.
"""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass

from bench.live.cluster import BENCH_DIR, BenchCluster

#: In the order of slurmctld's table of locks.
LOCKS = ("conf", "job", "node", "part", "fed")
FILE = "/var/log/slurm/slurmctld.times"
LIBRARY = "slurmctld_times.so"
_LOCK = struct.Struct("=4Q")
_COUNTS = struct.Struct("=3Q")
_START = struct.Struct("=2Q")
_HEAD_BYTES = len(LOCKS) * _LOCK.size + _COUNTS.size


@dataclass(frozen=True, slots=True)
class Held:
    """One lock held for writing: how often, seconds by the clock and of processor, the longest."""

    count: int
    held_s: float
    cpu_s: float
    longest_s: float


@dataclass(frozen=True, slots=True)
class Times:
    """Since slurmctld was started.

    locks: by name. starts: (seconds of the selection, of those the seconds in a plugin that it
    asked) for each selection that let a job start. fruitless: the others, and their seconds.
    """

    locks: dict[str, Held]
    starts: list[tuple[float, float]]
    fruitless: int
    fruitless_s: float


def decode(raw: bytes) -> Times:
    """The file's bytes; ValueError for one that slurmctld did not write."""
    if len(raw) < _HEAD_BYTES:
        raise ValueError(f"{len(raw)} bytes of {FILE}; expected {_HEAD_BYTES} and more")
    locks = {
        name: Held(count, held / 1e9, cpu / 1e9, longest / 1e9)
        for name, (count, held, cpu, longest) in zip(
            LOCKS, _LOCK.iter_unpack(raw[: len(LOCKS) * _LOCK.size]), strict=True
        )
    }
    fruitless, fruitless_ns, count = _COUNTS.unpack_from(raw, len(LOCKS) * _LOCK.size)
    body = raw[_HEAD_BYTES : _HEAD_BYTES + count * _START.size]
    starts = [(whole / 1e9, within / 1e9) for whole, within in _START.iter_unpack(body)]
    if not locks["job"].count or len(starts) != count:
        raise ValueError(f"{FILE}: {locks}, {len(starts)} of {count} starts; expected all of them")
    return Times(locks, starts, fruitless, fruitless_ns / 1e9)


def start(cluster: BenchCluster, variant: str) -> None:
    """slurmctld with that variant's files, measured from now on; its log begins anew."""
    cluster.sh(
        f"clusterctl slurmctld stop; clusterctl configure {variant}; rm -f {FILE};"
        " : >/var/log/slurm/slurmctld.log;"
        f" LD_PRELOAD={BENCH_DIR}/{LIBRARY} SLURMCTLD_TIMES={FILE} clusterctl slurmctld start"
    )


def read(cluster: BenchCluster) -> Times:
    """What it noted so far."""
    starts = f"$(od -An -t u8 -j {_HEAD_BYTES - 8} -N 8 {FILE})"
    size = f"$(({_HEAD_BYTES} + {_START.size} * {starts}))"
    return decode(base64.b64decode(cluster.sh(f"head -c {size} {FILE} | base64")))


def between(before: Times, after: Times) -> Times:
    """What was noted between two readings; the longest time of a lock is since the start."""
    locks = {
        name: Held(
            held.count - before.locks[name].count,
            held.held_s - before.locks[name].held_s,
            held.cpu_s - before.locks[name].cpu_s,
            held.longest_s,
        )
        for name, held in after.locks.items()
    }
    return Times(
        locks,
        after.starts[len(before.starts) :],
        after.fruitless - before.fruitless,
        after.fruitless_s - before.fruitless_s,
    )
