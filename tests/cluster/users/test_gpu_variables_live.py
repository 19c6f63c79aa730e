"""What each place that a job passes is told of its GPUs, beside what slurmctld gave it.

Prolog and Epilog, PrologSlurmctld and EpilogSlurmctld, TaskProlog, batch scripts and tasks.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from modes import enforcement

import slurm_plugin.node.launch
from slurm_cluster.cluster import Cluster
from slurm_cluster.hosts import until
from slurm_cluster.slurm_text import parse_indices

pytestmark = [pytest.mark.cluster, pytest.mark.both_modes("short")]

FOLDER = "/cluster/places"
SEEN = "/home/places"
SCRIPT = Path(slurm_plugin.node.launch.__file__).with_name("prolog-env")
#: PLACE -> what it saw, in a file JOB.PLACE.HOST.STEP.RANK
RECORD = f"""\
#!/bin/sh
file={SEEN}/$SLURM_JOB_ID.$1.$(hostname).${{SLURM_STEP_ID:-batch}}.$SLURM_PROCID
env | grep -E 'GPU|CUDA|ROCR' >$file.new; mv $file.new $file
"""
PLACE = f"#!/bin/sh\n{FOLDER}/record $SLURM_SCRIPT_CONTEXT\n"
ON_NODE = f"""\
#!/bin/sh
[ $SLURM_SCRIPT_CONTEXT = epilog_slurmd ] || {FOLDER}/record slurmd_alone
eval "$({FOLDER}/prolog-env)"
exec {FOLDER}/record $SLURM_SCRIPT_CONTEXT
"""
PLACES = """\
Prolog={0}/on-node
Epilog={0}/on-node
PrologSlurmctld={0}/place
TaskProlog={0}/place"""
#: In each job: its script and the tasks of a step, which then wait.
INSIDE = f"{FOLDER}/record script; {{}} {FOLDER}/record task; sleep 300"
Variables = dict[str, str]
Places = dict[str, list[Variables]]
#: A job on a host.
Key = tuple[int, str]


@pytest.fixture(scope="module", autouse=True)
def places(session_cluster: Cluster) -> Iterator[None]:
    """They write down what they see."""
    session_cluster.run("ctl", f"mkdir -p {FOLDER} && install -d -m 1777 {SEEN}")
    files = {"record": RECORD, "place": PLACE, "on-node": ON_NODE, "prolog-env": SCRIPT.read_text()}
    for name, text in files.items():
        session_cluster.put("ctl", f"{FOLDER}/{name}", text)
    session_cluster.run("ctl", f"chmod 755 {FOLDER} {FOLDER}/*")
    lines = PLACES.format(FOLDER)
    if enforcement() == "select":  # with slots it is the one that tells the engine
        lines += f"\nEpilogSlurmctld={FOLDER}/place"
    try:
        with session_cluster.at_home(slurm_conf=lines):
            yield
    finally:
        session_cluster.run("ctl", f"rm -rf {FOLDER} {SEEN}")


def seen(cluster: Cluster) -> dict[Key, Places]:
    """What each place saw, more than once where several tasks ran.

    A task of a heterogeneous job has the id of the first component on every node; here it is given
    to the second, on the node that only this one has.
    """
    text = cluster.run("ctl", f"cd {SEEN}; for f in *; do echo == $f; cat $f; done").out
    result: dict[Key, Places] = {}
    for part in re.split(r"^== ", text, flags=re.M)[1:]:
        name, *lines = part.splitlines()
        if name.endswith(".new"):
            continue
        jobid, place, host, *_ = name.split(".")
        variables = dict(line.split("=", 1) for line in lines)
        result.setdefault((int(jobid), host), {}).setdefault(place, []).append(variables)
    for job, host in list(result):
        if {"slurmd_alone", "prolog_slurmctld"}.isdisjoint(result[job, host]):
            result[job + 1, host].update(result.pop((job, host)))
    return result


def gpus(variables: Variables, name: str) -> tuple[int, ...]:
    return parse_indices(variables.get(name, ""))


@pytest.mark.long("Slurm alone does it right there; slurm.conf changes for it", "select")
def test_every_place_knows_the_jobs_gpus_on_its_node(cluster):
    """One to eight GPUs, two nodes, an array, a heterogeneous job, both vendors."""
    cluster.run("ctl", f"rm -f {SEEN}/*")
    requests = [
        ["-w", "dgx1,dgx2", "-N2", "--gres=gpu:3"],
        ["-w", "minsky1", "--array=0-1", "--gres=gpu:1"],
        ["-w", "bridged1", "--gres=gpu:8", "--exclusive"],
        ["-w", "amd1", "-n2", "--gpus-per-task=2"],
    ]
    mixed = ["-w", "dgx1", "--gres=gpu:2", ":", "-w", "dgx2", "--gres=gpu:4"]
    cluster.submit_many(requests, script=INSIDE.format("srun"))
    cluster.submit_many([mixed], script=INSIDE.format("srun --het-group=0,1"))
    until(lambda: not cluster.run("ctl", "squeue -h -t PD,CF").out, "all run", 40)
    given = {(job.id, host): has for job in cluster.jobs() for host, has in job.gpus.items()}
    assert sorted(map(len, given.values())) == [1, 1, 2, 3, 3, 4, 4, 8]
    wait_seen(cluster, given.keys(), "task")
    cluster.cancel(*(jobid for jobid, _ in given))
    wait_seen(cluster, given.keys(), "epilog_slurmd")
    for key, places in seen(cluster).items():
        check(places, given.get(key, ()))


def wait_seen(cluster: Cluster, hosts: Iterable[Key], place: str) -> None:
    """Until it wrote down what it saw, on each of these hosts of jobs."""

    def late() -> list[Key]:
        there = seen(cluster)
        return [key for key in hosts if place not in there.get(key, {})]

    until(lambda: not late(), lambda: f"{place} of {late()}", 40)


def check(places: Places, has: tuple[int, ...]) -> None:
    """What the places of one job on one host say; on the controller's it has no GPU."""
    if "prolog_slurmctld" in places:
        assert (places["prolog_slurmctld"], has) == ([{}], ())
        assert places.get("epilog_slurmctld", [{}]) == [{}]
        return
    for place in ("prolog_slurmd", "epilog_slurmd", *(["script"] if "script" in places else [])):
        (variables,) = places[place]
        assert (place, gpus(variables, "SLURM_JOB_GPUS")) == (place, has)
        assert (place, gpus(variables, "CUDA_VISIBLE_DEVICES")) == (place, has)
    # The flaw of Slurm that prolog-env is for.
    (alone,) = places["slurmd_alone"]
    assert gpus(alone, "SLURM_JOB_GPUS") == (has[-1:] if enforcement() == "slots" else has)
    for place in ("prolog_task", "task"):
        of_steps = [variables for variables in places[place] if "SLURM_STEP_GPUS" in variables]
        for variables in of_steps:
            own = gpus(variables, "CUDA_VISIBLE_DEVICES")
            assert own == gpus(variables, "SLURM_STEP_GPUS")
        assert {gpu for one in of_steps for gpu in gpus(one, "CUDA_VISIBLE_DEVICES")} == set(has)
