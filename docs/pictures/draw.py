"""Draws the pictures of the pages beside this file; `make docs` runs it.

Every figure in them is computed: on the machines of the catalog, by the judge of the simulator.
"""

from __future__ import annotations

import json
from pathlib import Path

from gres_topology import catalog
from gres_topology.pictures import (
    BUSY,
    Marks,
    Pane,
    Picture,
    charts,
    machine_picture,
    sheet,
    write,
)
from simulation.core.jobs import SimJob
from simulation.core.link_quality import judge
from simulation.models.placing import Simulator
from simulation.report import plots
from simulation.stock import policy_named
from slurm_plugin.tell.web import demo

HERE = Path(__file__).resolve().parent
_HALF = 490.0


def machine() -> Picture:
    """What a topology knows."""
    return machine_picture(
        catalog.load("dgx1v"), title="dgx1v: who is joined to whom, and how fast"
    )


def two_gpus() -> Picture:
    """The same job twice: as Slurm takes GPUs, and as their links ask for."""
    topology = catalog.load("dgx1v")
    panes = []
    for who, gpus in (
        ("Slurm alone takes 0 and 1", (0, 1)),
        ("slurm-gputopo takes 0 and 3", (0, 3)),
    ):
        marks = Marks(held=dict.fromkeys(gpus, "the job"), chosen=gpus)
        drawn = machine_picture(topology, marks, title=who, is_small=True)
        speed = f"{judge(topology, gpus).effbw_gbps:.1f} GB/s"
        panes.append(Pane(drawn, _HALF, [who, speed]))
    return sheet("sbatch --gres=gpu:2 on an empty DGX-1V", ["All eight GPUs are free."], panes)


def fragments() -> Picture:
    """Why a job waits beside free GPUs."""
    topology = catalog.load("dgx-h100")
    panes = []
    for name, free in (("h100-1", (1, 4, 6)), ("h100-2", (0, 3, 5))):
        busy = {gpu: BUSY for gpu in range(topology.gpus) if gpu not in free}
        drawn = machine_picture(topology, Marks(held=busy), title=name, is_small=True)
        panes.append(Pane(drawn, _HALF, [f"{name}: {len(free)} GPUs are free"]))
    lines = ["Six GPUs are free, and never four on one node: gputopo why says so in a sentence."]
    return sheet("sbatch --gres=gpu:4 waits", lines, panes)


def loan() -> Picture:
    """A job with GPUs of another node."""
    topology = catalog.load("minsky")
    panes = []
    for name, gpus, whose in (
        ("minsky1", (0, 1, 3), "the job runs here, on its own three GPUs"),
        ("minsky2", (2,), "and borrows the fourth one from here"),
    ):
        others = {gpu: BUSY for gpu in range(topology.gpus) if gpu not in gpus}
        marks = Marks(held={**others, **dict.fromkeys(gpus, "the job")})
        drawn = machine_picture(topology, marks, title=name, is_small=True)
        panes.append(Pane(drawn, _HALF, [name, whose]))
    return sheet("sbatch --gres=gpu:4 --gpu-topo=remote=allow", ["No node has four free."], panes)


def page_job() -> Picture:
    """What `gputopo web` draws of a job: one of its recorded day, among the node's other jobs."""
    day = demo.Day(speed=1.0, clock=lambda: 0.0)
    jobs = {job.job_id: job for job in demo.DemoSlurm(day).queue()}
    tail = demo.DemoDecisions(day)
    tail.read()
    best = max(
        (choice for number, choice in tail.of_job.items() if number in jobs and choice.slurm_gbps),
        key=lambda choice: (choice.gbps or 0.0) / (choice.slurm_gbps or 1.0),
    )
    [(node, gpus)] = best.gpus.items()
    held = {gpu: f"job {job.job_id}" for job in jobs.values() for gpu in job.gpus.get(node, ())}
    marks = Marks(held=held, chosen=gpus, beside=best.slurm_gpus.get(node, ()))
    [machine_name] = {row["machine"] for row in day.recorded["nodes"] if row["name"] == node}
    title = f"job {best.job} on {node}: {best.gbps:.1f} GB/s, Slurm's own {best.slurm_gbps:.1f}"
    return machine_picture(catalog.load(machine_name), marks, title=title)


def report() -> Picture:
    """Pictures of a page that `gputopo simulate --html` writes: the jobs of the recorded day."""
    day = demo.Day(speed=1.0, clock=lambda: 0.0).recorded
    machines = {row["name"]: row["machine"] for row in day["nodes"] if row["partition"] == "gpu"}
    cluster = {name: catalog.load(machine) for name, machine in machines.items()}
    jobs = [
        SimJob(row["id"], tuple(row["asks"]), row["end"] - row["start"], row["submit"],
               walltime_s=row["limit_s"], user=row["user"])
        for row in day["jobs"] if row["partition"] == "gpu"
    ]  # fmt: skip
    stock, mapa = (
        Simulator(cluster, policy_named(name), easy=True).run(jobs) for name in ("stock", "mapa")
    )
    users, said = plots.users(mapa, stock, cluster)
    assert users is not None
    panes = [
        Pane(plots.waits([stock, mapa]), _HALF, ["Who waits"]),
        Pane(plots.stranded([stock, mapa], cluster)[0], _HALF, ["Free, and of no use"]),
        Pane(users, _HALF, ["Bandwidth won and lost"]),
        Pane(plots.use(mapa, cluster, 8 * len(cluster)), _HALF, ["Use of the nodes"]),
    ]
    title = f"{len(jobs)} jobs on {len(cluster)} DGX-1V: Slurm's own choice, and mapa"
    return sheet(title, [said], panes)


def growth() -> Picture:
    """What `make bench ONLY=growth` measured."""
    measured = json.loads((Path(__file__).parent / "growth.json").read_text())
    panes = []
    for name, title, across in (
        ("nodes", "Against nodes, of eight GPUs each", "nodes"),
        ("gpus", "Against GPUs per node, 100,000 in all", "GPUs of a node"),
        ("changes", "Against nodes that changed, of 12,500", "nodes that changed since the last"),
        ("waiting", "Against waiting jobs (slots mode)", "jobs behind gates"),
    ):
        curves = {
            line: [(row["at"], row["cpu_ms"]) for row in rows]
            for line, rows in measured["rows"][name].items()
        }
        is_log = name == "waiting"
        drawn = charts.lines(title, curves, x=across, y="ms of processor time, median",
                             has_dots=True, is_log=is_log,
                             is_log_x=is_log or name == "nodes")  # fmt: skip
        panes.append(Pane(drawn, _HALF))
    return sheet(
        "What a decision costs",
        ["Nodes are on a logarithmic axis, waiting jobs and the time of their plan on two."],
        panes,
    )


PICTURES = {
    "machine": machine,
    "two-gpus": two_gpus,
    "fragments": fragments,
    "loan": loan,
    "page-job": page_job,
    "report": report,
    "growth": growth,
}


def main() -> None:
    """Write all of them."""
    for name, draw in PICTURES.items():
        write(draw(), HERE / f"{name}.svg")


if __name__ == "__main__":
    main()
