"""One job or one node in full, with pictures, as far as a viewer may see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gres_topology.pictures import BUSY, Marks, machine_picture
from slurm_plugin.base.log_lines import Line, LineReader
from slurm_plugin.decide.machines import Machine
from slurm_plugin.slurm.interface import QueuedJob
from slurm_plugin.tell.explain.drawing import hops_of
from slurm_plugin.tell.explain.slurm_says import loan_in
from slurm_plugin.tell.explain.story import Story, gpus_of, may_see, story_of
from slurm_plugin.tell.explain.text import in_words
from slurm_plugin.tell.web.sources import Sources
from slurm_plugin.tell.why.answer import answer
from slurm_plugin.tell.why.reading import Reading
from slurm_plugin.tell.why.words import as_json

#: Pictures of a job's nodes, of its candidates, and of the jobs of a node.
MAX_NODES, MAX_CANDIDATES, MAX_JOBS = 4, 8, 16

#: How a decision is said.
WORDS = {"use": "placed", "pass": "left to Slurm's own choice", "shape": "shaped"}

Gpus = Mapping[str, Sequence[int]]


class NotFound(Exception):
    """There is no such job or node, or none that this viewer may see: the answer is the same."""


@dataclass(frozen=True, slots=True)
class Details:
    """Everything here blocks, reads files, and is to be called in a thread."""

    sources: Sources
    reading: Reading
    #: Says that nobody waits for the answer any more: it ends with `search.Stopped` then.
    is_over: Callable[[], bool] = lambda: False
    #: Each running job's colour, and its user's, as everywhere on the page.
    colours: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    def job(self, number: int, uid: int | None) -> dict[str, Any]:
        """Why a job has its GPUs or still waits. Raises NotFound."""
        job = next((one for one in self.reading.snapshot.jobs if one.job_id == number), None)
        if job is not None and uid not in (None, job.uid):
            raise NotFound(f"job {number}")
        reader = LineReader()
        records = self._records(number, uid, reader)
        if job is None and not records:
            raise NotFound(f"job {number}")
        story: dict[str, Any] = {}
        if records:
            known = self.sources.machines
            story = story_of(number, records, "decision log", reader.unread, known)
        lines = in_words(story).splitlines() if story else [""]
        details: dict[str, Any] = {
            "job": number,
            "is_over": job is None,
            "headline": lines[0],
            "facts": [[line[:14].strip(), line[14:].strip()] for line in lines[1:]],
            "timeline": _timeline(job, story),
            "ranks": [[node, gpu] for node, gpus in gpus_of(story).items() for gpu in gpus],
            "pictures": self._of_job(number, job, story, uid),
            "candidates": self._candidates(story),
        }
        if job is not None and job.state == "PENDING":
            details["why"] = self._why(job, uid)
        return details

    def _records(self, number: int, uid: int | None, reader: LineReader) -> list[Line]:
        try:
            records = self.sources.records_of(number, reader, self.is_over)
        except OSError:
            return []
        return records if uid is None else may_see(records, uid)

    def _why(self, job: QueuedJob, uid: int | None) -> dict[str, Any]:
        state = self.reading.seen_by(uid).state_of(job)
        return as_json(answer(state, self.sources.lending))

    def _of_job(
        self, number: int, job: QueuedJob | None, story: Story, uid: int | None
    ) -> list[dict[str, str]]:
        """Its nodes with its ranks, what Slurm would have taken, and the nodes that lend to it."""
        own: Gpus = gpus_of(story) if story else {}
        own = own or (job.gpus if job is not None else {})
        slurm = story.get("slurm", {}).get("gpus", {})
        loan = story.get("loan") or (loan_in(job.admin_comment, is_waiting=False) if job else {})
        # Of a loan no node has all ranks that talk.
        pattern = "" if loan else story.get("pattern", "ring")
        pictures = []
        for node in list(own)[:MAX_NODES]:
            title = f"job {number} on {node}"
            holders = self._holders(node, uid) if job is not None else {}
            of_node = slurm.get(node, ())
            pictures += self._picture(node, title, holders, own[node], of_node, pattern)
        for donor in loan.get("donors", ())[:MAX_NODES]:
            title = f"{donor['node']} lends to job {number} by job {donor['job']}"
            holders = self._holders(donor["node"], uid)
            pictures += self._picture(donor["node"], title, holders, donor["gpus"], pattern="")
        return pictures

    def _candidates(self, story: Story) -> list[dict[str, Any]]:
        rows, pattern = [], story.get("pattern", "ring")
        for one in story.get("candidates", ())[:MAX_CANDIDATES]:
            pictures = [
                picture
                for node, gpus in one["gpus"].items()
                for picture in self._picture(node, node, {}, gpus, pattern=pattern, is_small=True)
            ]
            keys = ("gpus", "effbw_gbps")
            rows.append({key: one.get(key) for key in keys} | {"pictures": pictures})
        return rows

    def node(self, name: str, uid: int | None) -> dict[str, Any]:
        """A node's GPUs with their links and holders, and each job's ring. Raises NotFound."""
        jobs = self.reading.snapshot.jobs
        if name not in {node.name for node in self.reading.snapshot.nodes}:
            raise NotFound(f"node {name}")
        machine = self.sources.machines.get(name)
        holders = self._holders(name, uid)
        pictures = self._picture(name, name, holders)
        own = [job for job in jobs if len(job.gpus.get(name, ())) > 1 and uid in (None, job.uid)]
        for job in own[:MAX_JOBS]:
            choice = self.sources.decisions.of_job.get(job.job_id)
            gpus: Sequence[int] = job.gpus[name]
            slurm: Sequence[int] = ()
            pattern = "ring"
            if choice is not None and set(choice.gpus.get(name, ())) == set(gpus):
                gpus, slurm = choice.gpus[name], choice.slurm_gpus.get(name, ())
                pattern = choice.pattern
            title = f"{_called(job)} on {name}"
            pictures += self._picture(name, title, holders, gpus, slurm, pattern)
        problem = "not declared in gputopo.yaml" if machine is None else machine.problem
        return {"node": name, "pictures": pictures, "problem": "" if pictures else problem}

    def _holders(self, node: str, uid: int | None) -> dict[int, str]:
        """Slurm's index of each GPU in use -> its holder, in words that the viewer may see."""
        used = next((one.used for one in self.reading.snapshot.nodes if one.name == node), ())
        holders = dict.fromkeys(used, BUSY)
        for job in self.reading.snapshot.jobs:
            is_seen = uid in (None, job.uid)
            for gpu in job.gpus.get(node, ()):
                holders[gpu] = _called(job) if is_seen else BUSY
        return holders

    def _styles(self, held: Mapping[int, str]) -> dict[str, int]:
        """The colours of these holders of GPUs."""
        if not self.colours or not held:
            return {}
        names, jobs = set(held.values()), self.reading.snapshot.jobs
        return {
            called: self.colours[job.job_id][0]
            for job in jobs
            if job.job_id in self.colours and (called := _called(job)) in names
        }

    def _picture(
        self,
        node: str,
        title: str,
        holders: Mapping[int, str],
        chosen: Sequence[int] = (),
        slurm: Sequence[int] = (),
        pattern: str = "",
        *,
        is_small: bool = False,
    ) -> list[dict[str, str]]:
        """One picture of the node, or none where its topology is not known.

        Of `chosen`, in rank order, the pairs that talk by the pattern are drawn; '': none.
        """
        machine = self.sources.machines.get(node)
        if machine is None or machine.topology is None:
            return []
        order = _order(machine)
        there = range(len(order))
        held: dict[int, str] = {}
        for gpu, name in holders.items():
            if gpu in there:
                # Slices of one GPU may be held by several jobs.
                former = held.get(order[gpu], name)
                held[order[gpu]] = name if former == name else _SEVERAL
        ranks = list(dict.fromkeys(order[gpu] for gpu in chosen if gpu in there))
        # No link joins slices.
        is_whole = all(machine.whole >> gpu & 1 for gpu in chosen)
        marks = Marks(
            held=held,
            styles=self._styles(held),
            chosen=ranks,
            hops=hops_of(pattern, ranks) if pattern and is_whole and len(ranks) > 1 else [],
            beside=list({order[gpu]: None for gpu in slurm if gpu in there}),
            names=machine.names,
        )
        drawn = machine_picture(machine.topology, marks, title=title, is_small=is_small)
        return [{"title": title, "svg": drawn.svg(is_inline=True)}]


_SEVERAL = "several jobs"


def _called(job: QueuedJob) -> str:
    return f"job {job.name or job.job_id}"


def _order(machine: Machine) -> Sequence[int]:
    """Slurm's GPU -> the topology's."""
    assert machine.topology is not None
    return machine.order or range(machine.topology.gpus)


def _timeline(job: QueuedJob | None, story: Story) -> list[dict[str, Any]]:
    """What happened to the job, oldest first: times are epochs, or ISO texts of the log."""
    events: list[dict[str, Any]] = []
    if job is not None and job.submit:
        events.append({"at": job.submit, "what": "submitted"})
    for record in [*story.get("earlier", ()), *([story] if story.get("decision") else [])]:
        waits, decision = record.get("wait_s"), str(record.get("decision", ""))
        what = f"postponed by {waits} s at most" if waits else WORDS.get(decision, decision)
        why = record.get("note") or record.get("reason") or record.get("why") or ""
        events.append({"at": record.get("time", ""), "what": what, "why": why})
    if "started" in story:
        events.append({"at": story["started"]["time"], "what": "started"})
    elif job is not None and job.start and job.state != "PENDING":
        events.append({"at": job.start, "what": "started"})
    return events
