"""The loop that looks for as long as the configuration says so, on a Slurm that only remembers."""

import asyncio
import time
from collections.abc import Sequence

from machines_in_tests import BASIC

from slurm_plugin.decide.decision_log import DecisionLog
from slurm_plugin.serve import setup
from slurm_plugin.serve.gates_loop import GatesLoop
from slurm_plugin.serve.service import Engine
from slurm_plugin.slurm.interface import NOW, JobUpdate, QueuedJob


class Remembering:
    """A Slurm client with a queue, whose jobs lose their brackets as they are told."""

    def __init__(self) -> None:
        self.there: dict[str, QueuedJob] = {}
        self.updates: list[tuple[str, JobUpdate]] = []

    def queue(self) -> list[QueuedJob]:
        return list(self.there.values())

    def update(self, jobs: Sequence[str], change: JobUpdate) -> None:
        for name in jobs:
            self.updates.append((name, change))
            del self.there[name]

    def gate(self, job_id: int) -> None:
        self.there[str(job_id)] = QueuedJob(
            job_id,
            str(job_id),
            state="PENDING",
            reason="BeginTime",
            admin_comment="[gpu-slots: gated token=t tpn=gres/gpu:2 nodes=1-1 by=node]",
        )


def test_while_it_is_switched_off_every_gate_is_opened_of_later_jobs_too(
    tmp_path, monkeypatch, caplog
):
    """The bridge may use an answer of before for a second more. It is said once."""
    path = tmp_path / "gputopo.yaml"
    path.write_text(f"{BASIC}enforcement: slots\n".format(folder=tmp_path))
    slurm = Remembering()
    monkeypatch.setattr(setup.choose, "client", lambda _: slurm)
    first = setup.load(path)
    ours = GatesLoop(Engine(first, DecisionLog(first.config.decision_log), setup.load))
    first.config.kill_switch.touch()
    for job_id in (1, 2):
        slurm.gate(job_id)
        asyncio.run(ours.look(time.monotonic()))
    assert [(name, update.begin_time) for name, update in slurm.updates] == [("1", NOW), ("2", NOW)]
    assert caplog.text.count("slots: switched off; waiting jobs are given back to Slurm") == 1
