"""What is made of the times that are taken inside slurmctld, and of the rounds of both sides."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path
from random import Random

import pytest

from bench.live.cluster import ASSETS
from bench.live.job_mix import mix, script, tasks
from bench.live.large.ctld_times import between, decode
from bench.live.large.start_large import interval
from bench.live.start_many import ManyNodes

#: Stands for slurmctld: takes its five locks for writing as it does, the second for 20 ms, and a
#: lock of somebody else for longer; then asks for a selection that finds nothing and one that does.
FAKE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>
pthread_rwlock_t table[5], other;
long select_p_job_test(long a, long b, long c, long d, long e, long mode) {
    (void) a; (void) b; (void) c; (void) d;
    usleep(mode ? 1000 : 10000);
    return e;
}
__attribute__((noinline)) void lock_slurmctld(int count) {
    for (int i = 0; i < count; i++) pthread_rwlock_wrlock(&table[i]);
}
int main(void) {
    long (*test)(long, long, long, long, long, long) = dlsym(RTLD_DEFAULT, "select_p_job_test");
    lock_slurmctld(5);
    for (int i = 4; i >= 0; i--) pthread_rwlock_unlock(&table[i]);
    lock_slurmctld(2);
    usleep(20000);
    pthread_rwlock_wrlock(&other);
    pthread_rwlock_unlock(&table[1]);
    pthread_rwlock_unlock(&table[0]);
    usleep(30000);
    pthread_rwlock_unlock(&other);
    pthread_rwlock_rdlock(&table[1]);
    usleep(30000);
    pthread_rwlock_unlock(&table[1]);
    return test(0, 0, 0, 0, 0, 2) + test(0, 0, 0, 0, 0, 0) + test(0, 0, 0, 0, 1, 0) - 1;
}
"""


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
def test_only_write_locks_of_the_table_and_selections_that_start_a_job_count(
    tmp_path: Path,
) -> None:
    (tmp_path / "fake.c").write_text(FAKE)
    for out, source, options in (
        ("fake", tmp_path / "fake.c", ["-rdynamic"]),
        ("times.so", ASSETS / "slurmctld_times.c", ["-shared", "-fPIC", "-Werror", "-Wextra"]),
    ):
        command = ["gcc", "-O1", "-Wall", *options, "-o", str(tmp_path / out), str(source)]
        subprocess.run([*command, "-lpthread", "-ldl"], check=True)
    environ = {
        "LD_PRELOAD": str(tmp_path / "times.so"),
        "SLURMCTLD_TIMES": str(tmp_path / "times"),
    }
    subprocess.run([tmp_path / "fake"], env=environ, check=True)
    times = decode((tmp_path / "times").read_bytes())
    assert [held.count for held in times.locks.values()] == [2, 2, 1, 1, 1]
    assert 0.02 <= times.locks["job"].held_s < 0.05 + times.locks["conf"].held_s
    assert times.locks["job"].cpu_s < times.locks["job"].held_s
    assert [whole >= 0.01 > within for whole, within in times.starts] == [True]
    assert times.fruitless == 2


def raw(count: int, starts: list[tuple[int, int]]) -> bytes:
    """The file of a slurmctld that took each lock so often, a millisecond each time."""
    lock = struct.pack("=4Q", count, count * 10**6, count * 10**5, 10**6)
    rest = b"".join(struct.pack("=2Q", *start) for start in starts)
    return lock * 5 + struct.pack("=3Q", 0, 0, len(starts)) + rest


def test_between_two_readings_counts_what_came_in_between() -> None:
    before = decode(raw(2, [(10**9, 0)]))
    after = decode(raw(5, [(10**9, 0), (2 * 10**9, 10**9)]))
    found = between(before, after)
    job = found.locks["job"]
    assert (job.count, job.held_s, job.cpu_s) == (3, pytest.approx(3e-3), pytest.approx(3e-4))
    assert found.starts == [(2.0, 1.0)]


@pytest.mark.parametrize("bad", [b"", raw(0, []), raw(1, [(1, 1)])[:-1]])
def test_a_file_that_slurmctld_did_not_fill_is_an_error(bad: bytes) -> None:
    with pytest.raises((ValueError, struct.error)):
        decode(bad)


def test_the_interval_holds_the_ratio_and_shrinks_to_it_where_rounds_agree() -> None:
    assert interval([2.0, 4.0, 6.0], [1.0, 2.0, 3.0]) == (2.0, 2.0)
    low, high = interval([1.0, 3.0, 2.0, 4.0], [1.0, 1.0, 2.0, 2.0])
    assert low < 10 / 6 < high


def test_the_mix_has_every_command_and_arrays_by_sbatch_alone() -> None:
    jobs = mix(200, Random(1), ("many",))
    lines = script(jobs, Random(1), 1.0, ("sbatch", "srun", "salloc")).splitlines()
    for command in ("sbatch", "srun", "salloc"):
        assert any(line.startswith(f"{command} ") for line in lines)
    assert all(line.startswith("sbatch ") for line in lines if "--array" in line)
    assert sum(map(tasks, jobs)) == 200 + 2 * sum("--array=0-2" in job for job in jobs)


def test_declared_nodes_are_members_of_the_partition_and_have_no_slurmd() -> None:
    text = ManyNodes(50, 900).slurm_conf()
    assert "NodeName=declared[001-900] NodeAddr=many" in text
    assert "Port=[17001-17050]" in text
    assert "Nodes=many[01-50],declared[001-900]" in text
