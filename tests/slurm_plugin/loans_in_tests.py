"""Loans in the slots mode for tests: nodes, a borrower, its donors, a Slurm that is played."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from socket import AF_UNIX, SHUT_RDWR, socket
from threading import Thread

from jobs_in_tests import waits

from slurm_plugin.act.lending.acting.question import Question
from slurm_plugin.base.job_notes.loan import Loan, LoanDonor
from slurm_plugin.base.job_notes.records import GateRecord
from slurm_plugin.config import presets
from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.errors import SlurmError
from slurm_plugin.queue.capacity import Node
from slurm_plugin.slurm.interface import JobUpdate, QueuedJob

V100 = tuple(f"v100.s{i}" for i in range(8))
P100 = tuple(f"p100.s{i}" for i in range(4))
SETTINGS = RemoteConfig(presets.load("echo"), allow=True)
LOAN = Loan("dgx1", 0b11, (LoanDonor("dgx2", 0b110, 71), LoanDonor("dgx3", 0b1, 72)))
REQUEST = "token=t tpn=gres/gpu:5 nodes=1- by=node remote=1"
AT = 1000
ALICES = {"uid": 1000, "user": "alice", "account": "research"}


def node(name: str, free: int, slots: tuple[str, ...] = V100, **more: object) -> Node:
    values: dict[str, object] = {"cpus": 8, "memory_mb": 8000, "partitions": frozenset({"batch"})}
    model = slots[0].partition(".")[0]
    return Node(name, slots, free, model=model, **{**values, **more})


def room(*nodes: Node) -> dict[str, Node]:
    return {one.name: one for one in nodes}


THREE = room(node("dgx1", 0b11), node("dgx2", 0b111), node("dgx3", 0b1))


def queued(stage: str = "gated", job_id: int = 7, more: str = "", **fields: object) -> QueuedJob:
    values: dict[str, object] = {
        "reason": "BeginTime", "priority": 100, "eligible": 1100, "time_limit_s": 90, "cpus": 4,
        "admin_comment": f"[gpu-slots: {stage} {REQUEST} {more}]", **ALICES,
    }  # fmt: skip
    return waits(job_id, 0, **{**values, **fields})


def gated_with(loaned: Loan, at: int = AT, **fields: object) -> QueuedJob:
    return queued(more=f"loan={loaned.text()} loan_at={at}", **fields)


def placed_with(at: int, **fields: object) -> QueuedJob:
    """A borrower on its two local slots."""
    values = {"tres_per_node": "gres/gpu:v100.s0:1,gres/gpu:v100.s1:1", "req_nodes": "dgx1"}
    more = f"loan={LOAN.text()} at={at}"
    return queued("placed", more=more, **{**values, "eligible": at, "reason": "None", **fields})


def kept_of(job: QueuedJob) -> GateRecord:
    kept = GateRecord.read_from(job.admin_comment)
    assert kept is not None
    return kept


def a_donor(job_id: int, comment: str = "gpu-donor of=7", **fields: object) -> QueuedJob:
    node, gpus = ("dgx3", (0,)) if job_id == 72 else ("dgx2", (1, 2))
    values: dict[str, object] = {
        "state": "RUNNING", "cpus": 2, "memory_per_node_mb": 1024, "uid": 1000, "nodes": (node,),
        "gpus": {node: gpus}, "req_nodes": node, "admin_comment": "[gpu-donor: of=7]",
    }  # fmt: skip
    return QueuedJob(job_id, str(job_id), comment=comment, **{**values, **fields})


def ready(job_id: int, port: int = 5000, **fields: object) -> QueuedJob:
    return a_donor(job_id, f"gpu-donor ready of=7 port={port}", **fields)


@contextmanager
def answering(path: Path, reply: bytes) -> Iterator[None]:
    """A block in which a process at `path`, which would submit donors, answers this."""
    with socket(AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer() -> None:
            with suppress(OSError):
                while True:
                    with listener.accept()[0] as peer:
                        peer.recv(1000)
                        peer.sendall(reply)

        answers = Thread(target=answer, daemon=True)
        answers.start()
        yield
        listener.shutdown(SHUT_RDWR)
        answers.join()


class LendingSlurm:
    """Remembers what it was told, in order; refuses what begins with the words `refuses`.

    A donor that is submitted is in the queue from then on: job 71 on dgx2, 72 on any other node.
    """

    def __init__(self, *jobs: QueuedJob, refuses: str = "") -> None:
        self.jobs = list(jobs)
        self.refuses = refuses
        self.told: list[tuple[str, JobUpdate | None]] = []
        self.donor_is: dict[str, object] = {}
        self.away = ""

    def _hear(self, words: str, change: JobUpdate | None = None) -> None:
        self.told.append((words, change))
        if self.refuses and words.startswith(self.refuses):
            raise SlurmError(f"refused: {words}")

    def queue(self) -> list[QueuedJob]:
        return list(self.jobs)

    def update(self, jobs: Sequence[str], change: JobUpdate) -> None:
        self._hear(f"update {','.join(jobs)}", change)

    def __call__(self, argv: list[str], stdin: str = "", timeout_s: float | None = None) -> str:
        self._hear(" ".join(argv))
        return ""

    def donor(self, asked: Question) -> int:
        self._hear(asked.line().decode())
        job_id = 71 if asked.node == "dgx2" else 72
        self.jobs.append(replace(a_donor(job_id, state="PENDING"), **self.donor_is))
        return job_id

    def obstacle(self) -> str:
        return self.away

    @property
    def words(self) -> list[str]:
        return [words for words, _ in self.told]
