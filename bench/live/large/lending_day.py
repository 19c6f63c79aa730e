"""lending-day: a day of 300 jobs on a live Slurm, with GPUs lent over the network and without.

Four nodes of eight GPUs. A seeded mix of jobs of one node, of one to eight GPUs, comes in the same
seconds on both sides; a job computes on each of its GPUs and checks every number, then sleeps. In
`on` its partition is an R queue, in `off` nothing is lent; the jobs are the same to the letter.
With PoCL-Remote, where `slurm_cluster/cluster.sh pocl` was run (a fake GPU is a device of the
processor); else with the stand-in, which tells the lent devices.

LENDING_SIDES (default off,on): the sides to run. LENDING_SEED (1), LENDING_JOBS (300).
LENDING_OUT: a folder for every job's times.
"""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import fmean, median

import yaml

from bench.live.cluster import BENCH_DIR, BenchCluster, described
from bench.live.large.packing import DRIVER, TIMEOUT_S
from bench.live.placed.loan_start import CONFIG, FOLDER, PROGRAM, put_program
from bench.measure import Figure, at_most, conditions, quantile
from slurm_cluster.cluster import has_image
from slurm_cluster.description import Description
from slurm_cluster.hosts import until
from slurm_plugin.config.presets import FOLDER as PRESETS

NODES, PER_NODE = 4, 8
GPUS = NODES * PER_NODE
#: GPUs of a job -> its share of the jobs.
SIZES = {1: 0.30, 2: 0.25, 3: 0.08, 4: 0.25, 6: 0.05, 8: 0.07}
#: The last submit, and the load that the jobs' sleeps bring until then.
SPAN_S, LOAD = 360.0, 0.9
#: Sleeps are lognormal, within these seconds.
SIGMA, LEAST_S, MOST_S = 0.8, 2.0, 60.0
LIMIT_MIN = 5
SIDES = ("off", "on")
PARTITION = "PartitionName=day Nodes=dgx[1-4] DefaultTime=10 MaxTime=INFINITE State=UP\n"
DAY = Path("/home/alice/day")
#: A fake GPU is a device of the processor: that alone is ours in the preset.
FAKE_SERVER = [
    "sh", "-c",
    "POCL_DEVICES=$(echo $CUDA_VISIBLE_DEVICES | sed 's/[0-9]*/basic/g;s/,/ /g')"
    " exec pocld -a {bind} -p {port}",
]  # fmt: skip
#: What a job runs; its number and its sleep are $1 and $2. The last word of its line is how many
#: GPUs gave the right numbers, or a word that tells what was wrong.
JOB = """\
#!/bin/bash
began=$(date +%s.%N)
own=0 words=
for gpu in ${{CUDA_VISIBLE_DEVICES//,/ }}; do own=$((own + 1)) words="$words basic"; done
{compute}
sleep $2
ended=$(date +%s.%N) restarts=${{SLURM_RESTART_COUNT:-0}} lent=${{GPUTOPO_REMOTE_GPUS:--}}
echo "$1 $began $ended $own $restarts $lent $right" >>{day}/jobs
"""
POCL = """\
POCL_DEVICES="$words ${POCL_DEVICES:-}" pocl-compute product 32 >/tmp/day.$1 2>&1
right=$(grep -c ' equal ' /tmp/day.$1)
other=$(grep -v ' equal ' /tmp/day.$1 | head -1 | tr ' ' _)
[ -z "$other" ] || right="$right:$other"
rm /tmp/day.$1"""
#: The devices that the donors' servers tell, a line for each donor, behind the job's own.
ECHO = """\
devices() {{ {program} echo | cut -d' ' -f2 | tr , '\\n' | wc -l; }}
right=$own
[ -z "$GPUTOPO_REMOTE_GPUS" ] || right=$((own + $(devices)))"""


@dataclass(frozen=True)
class DayJob:
    """What is asked: seconds from the first submit on."""

    number: int
    at_s: float
    gpus: int
    sleep_s: float


@dataclass(frozen=True)
class Done:
    """What became of one: seconds from its submit; `lent` GPUs; `right` that computed rightly."""

    number: int
    at_s: float
    gpus: int
    sleep_s: float
    wait_s: float
    life_s: float
    own: int
    lent: int
    donors: int
    restarts: int
    right: str


def day(seed: int, count: int) -> list[DayJob]:
    """The jobs in the order of their submits."""
    draw = Random(seed)
    times = sorted(draw.uniform(0, SPAN_S) for _ in range(count))
    sizes = draw.choices([*SIZES], [*SIZES.values()], k=count)
    shapes = [draw.lognormvariate(0, SIGMA) for _ in range(count)]
    low, high = 0.0, MOST_S
    for _ in range(60):
        middle = (low + high) / 2
        work = sum(
            _sleep_s(shape, middle) * gpus for shape, gpus in zip(shapes, sizes, strict=True)
        )
        low, high = (middle, high) if work < LOAD * GPUS * SPAN_S else (low, middle)
    return [
        DayJob(number, round(at - times[0], 2), gpus, round(_sleep_s(shape, high), 2))
        for number, (at, gpus, shape) in enumerate(zip(times, sizes, shapes, strict=True))
    ]


def _sleep_s(shape: float, mean_s: float) -> float:
    return min(MOST_S, max(LEAST_S, shape * mean_s))


def stranded(done: Sequence[Done]) -> tuple[float, float]:
    """GPU seconds without a job while somebody waited who asked for no more; and such seconds."""
    events: list[tuple[float, int, int, int]] = []  # second, GPUs asked for, jobs more, GPUs taken
    for job in done:
        start, end = job.at_s + job.wait_s, job.at_s + job.life_s
        events += [(job.at_s, job.gpus, 1, 0), (start, job.gpus, -1, job.gpus)]
        events.append((end, job.gpus, 0, -job.gpus))
    waiting, free, idle, lasted = Counter[int](), GPUS, 0.0, 0.0
    for (at, asked, more, taken), (later, *_) in pairwise(sorted(events)):
        waiting[asked] += more
        free -= taken
        if any(count and size <= free for size, count in waiting.items()):
            idle += free * (later - at)
            lasted += later - at
    return idle, lasted


def read(text: str, jobs: Sequence[DayJob], submits: Mapping[int, float]) -> list[Done]:
    """The jobs' own lines; the last of one that ran twice."""
    found, first = dict[int, Done](), min(submits.values())
    for line in text.splitlines():
        number, began, ended, own, restarts, donors, right = line.split()
        job = jobs[int(number)]
        at = submits[job.number]
        each = [] if donors == "-" else [int(one.split(":")[1]) for one in donors.split(",")]
        found[job.number] = Done(
            **(asdict(job) | {"at_s": at - first}),
            wait_s=float(began) - at,
            life_s=float(ended) - at,
            own=int(own),
            lent=sum(each),
            donors=len(each),
            restarts=int(restarts),
            right=right,
        )
    return [found[number] for number in sorted(found)]


def wrong(done: Sequence[Done], jobs: Sequence[DayJob]) -> list[str]:
    """A line for each job that is not there, or whose GPUs did not all give the right numbers."""
    by_number = {one.number: one for one in done}
    told = []
    for job in jobs:
        one = by_number.get(job.number)
        if one is None:
            told.append(f"{job.number}: did not end")
        elif one.right != str(job.gpus) or one.own + one.lent != job.gpus:
            told.append(f"{job.number}: {one.own} + {one.lent} of {job.gpus} GPUs, {one.right}")
    return told


def of_side(side: str, done: Sequence[Done], jobs: Sequence[DayJob]) -> Iterator[Figure]:
    """Right numbers, waits, lifetimes, idle GPUs while somebody waited who needed no more."""
    bad = wrong(done, jobs)
    waits, lives = [one.wait_s for one in done], [one.life_s for one in done]
    idle, lasted = stranded(done)
    borrowers = [one for one in done if one.lent]
    detail = {
        "jobs": len(done),
        "such": bad[:3],
        "wait_mean_s": round(fmean(waits), 2),
        "wait_median_s": round(median(waits), 2),
        "wait_p95_s": round(quantile(waits, 0.95), 2),
        "wait_longest_s": round(max(waits), 2),
        "life_mean_s": round(fmean(lives), 2),
        "last_end_s": round(max(one.at_s + one.life_s for one in done), 1),
        "stranded_gpu_s": round(idle),
        "stranded_for_s": round(lasted),
        "borrowers": len(borrowers),
        "lent_gpus": sum(one.lent for one in borrowers),
        "most_donors": max((one.donors for one in borrowers), default=0),
        "restarts": sum(one.restarts for one in done),
        **conditions(),
    }
    yield at_most(f"lending_day.{side}.wrong", len(bad), "jobs", 0, detail=detail)


def both(off: Sequence[Done], on: Sequence[Done]) -> Iterator[Figure]:
    """What lending changes, as a share."""
    for name, value in (
        ("wait_mean", lambda done: fmean(one.wait_s for one in done)),
        ("life_mean", lambda done: fmean(one.life_s for one in done)),
        ("stranded", lambda done: stranded(done)[0]),
    ):
        yield at_most(
            f"lending_day.{name}",
            value(on) / value(off),
            "of that without lending",
            1.0,
            compared_with=f"{value(off):.2f} off, {value(on):.2f} on",
        )


def prepare(cluster: BenchCluster, side: str, has_pocl: bool) -> None:
    """The site lends to all jobs of the partition, or to none."""
    cluster.reset()
    put_program(cluster)
    values = yaml.safe_load((PRESETS / "pocl.yaml").read_text(encoding="utf-8"))
    values |= {"name": "pocl-fake", "server": FAKE_SERVER}
    cluster.put("ctl", "/etc/slurm/pocl-fake.yaml", yaml.safe_dump(values))
    words = f"program: {PROGRAM}, donor_memory_mb: 64"
    words += ", preset: pocl-fake.yaml" if has_pocl else ""
    words += ", allow: yes, r_queues: [day]" if side == "on" else ""
    cluster.put("ctl", CONFIG, f"{cluster.read('ctl', CONFIG)}remote: {{{words}}}\n")
    cluster.engine("restart")
    cluster.wait_reconciled()
    compute = POCL if has_pocl else ECHO.format(program=PROGRAM)
    cluster.sh(f"rm -rf {DAY}; mkdir {DAY}; chown alice {DAY}")
    cluster.put("ctl", f"{FOLDER}/job", JOB.format(compute=compute, day=DAY))
    cluster.sh(f"chmod -R a+rX {FOLDER}")


def command(job: DayJob) -> list[str]:
    """What submits the job and notes when."""
    words = ["sbatch", "--parsable", "-o", "/dev/null", "-p", "day", "-N1", "-n1", "--mem=100"]
    words += [f"--gres=gpu:{job.gpus}", f"-t{LIMIT_MIN}", f"{FOLDER}/job"]
    words += [str(job.number), str(job.sleep_s)]
    noted = f"at=$(date +%s.%N); id=$({shlex.join(words)}) && echo {job.number} $at $id"
    return ["bash", "-c", f"{noted} >>{DAY}/submits"]


def lived(cluster: BenchCluster, jobs: Sequence[DayJob]) -> list[Done]:
    """The jobs, submitted at their times, once all have ended."""
    lines = [json.dumps({"at_s": job.at_s, "command": command(job)}) for job in jobs]
    with tempfile.TemporaryDirectory(prefix="gputopo-bench-") as here:
        Path(here, DRIVER.name).write_text(DRIVER.read_text())
        Path(here, "day").write_text("\n".join(lines) + "\n")
        cluster.put_folder("ctl", BENCH_DIR, Path(here), user="alice")
    cluster.sh(f"python3 {BENCH_DIR}/{DRIVER.name} {BENCH_DIR}/day", user="alice")
    until(lambda: not cluster.sh("squeue -h -u alice -o %A"), "alice has no job", TIMEOUT_S)
    rows = [line.split() for line in cluster.read("ctl", f"{DAY}/submits").splitlines()]
    submits = {int(number): float(at) for number, at, _ in rows}
    return read(cluster.read("ctl", f"{DAY}/jobs"), jobs, submits)


def run() -> Iterator[Figure]:
    """Each side that the environment names, one after the other."""
    seed, count = (int(os.environ.get(f"LENDING_{k}", v)) for k, v in (("SEED", 1), ("JOBS", 300)))
    jobs = day(seed, count)
    has_pocl = has_image("pocl", None, Path(__file__).parents[3])
    site = Description({"dgx[1-4]": "dgx1v"}, slurm_conf=PARTITION, pocl=has_pocl)
    ended = dict[str, list[Done]]()
    with described("-day", site) as cluster:
        for side in os.environ.get("LENDING_SIDES", ",".join(SIDES)).split(","):
            prepare(cluster, side, has_pocl)
            ended[side] = lived(cluster, jobs)
            if folder := os.environ.get("LENDING_OUT"):
                rows = json.dumps([asdict(one) for one in ended[side]])
                Path(folder, f"lending-day-{seed}-{side}.json").write_text(rows)
            yield from of_side(side, ended[side], jobs)
    if set(SIDES) <= ended.keys():
        yield from both(ended["off"], ended["on"])
