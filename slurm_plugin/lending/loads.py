"""How much of the nodes' networks the running loans take, as the thesis's planner is told."""

from __future__ import annotations

from collections.abc import Iterable

from slurm_plugin.job_notes.loan import Loan


def loads_of(running: Iterable[tuple[Loan, float]]) -> dict[str, float]:
    """Node -> load from 0 to 1, of loans and the share of its time each spends on the network.

    Each GPU lent takes that share at both ends.
    """
    found: dict[str, float] = {}
    for loan, share in running:
        for donor in loan.donors:
            for name in (loan.host, donor.node):
                found[name] = found.get(name, 0.0) + share * donor.mask.bit_count()
    return {name: min(1.0, load) for name, load in found.items()}
