"""Every metric of ours: its name, kind, labels and meaning. docs/metrics.md has the same table."""

from __future__ import annotations

from typing import Literal, NamedTuple


class MetricFamily(NamedTuple):
    """One metric; the name is without `gputopo_`, and without the `_total` of a counter."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    about: str

    @property
    def exposed(self) -> str:
        """Its name as Prometheus shows it."""
        return f"gputopo_{self.name}" + ("_total" if self.kind == "counter" else "")


def _families(kind: Literal["counter", "gauge", "histogram"], text: str) -> list[MetricFamily]:
    """One for each line `name{label,...} meaning`."""
    families = []
    for line in text.strip().splitlines():
        name, _, about = line.strip().partition(" ")
        name, _, labels = name.rstrip("}").partition("{")
        families.append(MetricFamily(name, kind, tuple(filter(None, labels.split(","))), about))
    return families


FAMILIES = (
    *_families(
        "gauge",
        """
        build_info{version,python,enforcement} Always 1; what runs.
        uptime_seconds Seconds since the engine began.
        switched_off 1 while the kill switch leaves everything to Slurm.
        in_charge 1 where slurmctld of this host is in charge, 0 where the engine stands by.
        config_reloaded 0 where the last reload failed, and the old configuration is in force.
        nodes_declared Nodes that gputopo.yaml names.
        folders_not_writable Folders that gputopo.yaml names and in which the engine may not write.
        nodes_left_to_slurm{why} Nodes with GPUs on which none are chosen: "undeclared", or a "problem" that `gputopo status` names.
        """,  # noqa: E501
    ),
    *_families(
        "counter",
        """
        messages{verb} Messages by verb: questions, notices, administration.
        replies{reply} Replies by kind.
        passes{reason} Questions that were left to Slurm's own choice, by reason.
        late Answers that took longer than deadline_ms.
        budget_out Submits and updates that passed unasked, the bridge's budget_ms being used up.
        log_lines Lines written to the decision log.
        log_lost Lines of the decision log that were lost, as the disk was full or too slow.
        poll_failures{loop} Polls of Slurm that failed, by the loop that made them.
        """,
    ),
    *_families(
        "histogram",
        """
        answer_seconds{verb} How long an answer took, by verb.
        placement_seconds{policy} How long a policy took to choose GPUs.
        slurm_read_seconds{result} How long Slurm took to show its queue: "ok", or "failed".
        """,
    ),
    *_families(
        "counter",
        """
        decisions{decision,partition,policy,applied} Decisions; applied="no" in observed partitions.
        started Jobs with GPUs that started.
        started_undecided Jobs with GPUs that started without any decision before.
        started_otherwise Jobs that started on other GPUs than those chosen for them.
        compared{partition,policy,gpus} Placements compared with stock Slurm's, by GPUs of the job.
        bandwidth_bytes_per_second{partition,policy,gpus,choice} Sum of the compared jobs' effective bandwidths: "chosen", or as "slurm" would have chosen.
        rings{partition,policy,choice,pcie_hops} Rings of several GPUs, with or without PCIe hops.
        """,  # noqa: E501
    ),
    *_families(
        "histogram",
        """
        postponed_seconds{partition} How long a policy had let a job wait when it got its GPUs.
        """,
    ),
    *_families(
        "gauge",
        """
        snapshot_timestamp_seconds When Slurm was read for the gauges of this table (epoch).
        gpus{state} GPUs: "used", "free", or "closed" where Slurm starts nothing on the node.
        gpus_free{largest_set} Free GPUs by how many are free on their node.
        gpus_free_largest_set The most GPUs that are free on one node.
        gpus_stranded Free GPUs that no waiting job can use where they are.
        fragmentation_ratio Share of the free GPUs that a job cannot use, on average over the jobs.
        jobs{state} Jobs with GPUs: "running", or "waiting".
        jobs_waiting{reason} Waiting jobs by "gate", "loan", "postponed", "lends", or Slurm's word.
        jobs_unheard Running jobs of the last hour that slurmctld did not tell the engine of.
        gates{state} Jobs of the slots mode: "gated", or "placed" and about to start.
        loans{state} Jobs with a loan: "starting", or "running".
        gpus_lent GPUs that are lent to running jobs of other nodes.
        donors_orphaned Donors whose borrower is gone; they are cancelled within seconds.
        """,
    ),
    *_families(
        "counter",
        """
        gate_events{event} What became of gates: "released", "regated", "refused", "mismatched".
        loan_events{event} Loans "lent", "refused", "given_up", "lost", "cancelled", "taken_back".
        lent_gpu_seconds GPU seconds that donors lent until they ended.
        lent_bytes{direction} Bytes over connections to donors that ended: "to" them, or "from".
        lent_packets Packets with data to donors that ended: no fewer than the middleware's calls.
        """,
    ),
    *_families(
        "histogram",
        """
        gate_release_seconds From reading Slurm until it took the release of a gated job.
        gate_wait_seconds From the submit of a job until it was let through its gate.
        loan_setup_seconds From the making of a loan until the borrower was let start.
        """,
    ),
)
