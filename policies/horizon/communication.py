"""What share of its run time a job communicates: as it says, else as its runs showed.

A job that takes longer on GPUs of several sockets than on those of one feels its links; how much
of its time it communicates follows by Amdahl's law from how much longer. Hints come first, then
what the site measured, then what the user's own jobs of that name took.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from gres_topology import NodeTopology
from policies.best_fit import domains
from policies.contract.hint_keys import communication_in
from policies.contract.interference import NOBODY, Kind, kind_of_request
from policies.contract.nouns import Request, WaitingJob
from policies.patterns.pattern import fitting
from policies.scoring.node_tables import share_of
from policies.scoring.tables import Tables, is_tabulated


def run_s(ideal_s: float, communication: float, share: float) -> float:
    """How long a job runs (seconds) on GPUs with this share of the ideal bandwidth.

    Amdahl's law: what it computes takes as long anywhere.
    """
    return ideal_s * (1 - communication + communication / max(share, 0.01))


def communication_by(longer: float, near: float, far: float) -> float | None:
    """What a job communicates that takes `longer` times as long with `far` as with `near`.

    Both are shares of the ideal bandwidth; `run_s` solved for the communication. None where these
    GPUs cannot tell.
    """
    slope = (1 / max(far, 0.01) - 1) - longer * (1 / max(near, 0.01) - 1)
    if far >= near or slope <= 0:
        return None
    return min(1.0, max(0.0, (longer - 1) / slope))


def told_apart(communication: float) -> float:
    """What a job communicates, to a hundredth: few rankings of nodes serve all jobs."""
    return round(communication, 2)


class KnownShare(NamedTuple):
    """A share of communication, and who says so in words; empty: the job's own hint."""

    share: float
    source: str = ""


class Communication:
    """What is known of jobs' communication; `spreads` are a site's (`Site.spreads`)."""

    def __init__(self, spreads: Mapping[Kind, float], tables: Tables) -> None:
        self._spreads, self._tables = spreads, tables
        self._shares: dict[tuple[str, str, int], tuple[float, float] | None] = {}

    def of_request(self, request: Request, nodes: Iterable[NodeTopology]) -> KnownShare | None:
        """Of a job that asks; `nodes` are kinds of node that it may run on."""
        said = communication_in(request.options)
        if said is not None:
            return KnownShare(told_apart(said))
        if not self._spreads:
            return None
        return self._measured(kind_of_request(request), request.pattern, nodes)

    def of_waiting(self, job: WaitingJob, nodes: Iterable[NodeTopology]) -> float | None:
        """Of a job that waits."""
        if job.communication is not None:
            return told_apart(job.communication)
        if not (job.profile and self._spreads):
            return None
        user = NOBODY if job.user is None else job.user
        kind = Kind(job.profile, job.batch, sum(job.gpus_per_node), user)
        known = self._measured(kind, job.pattern, nodes)
        return None if known is None else known.share

    def _measured(
        self, kind: Kind, pattern: str, nodes: Iterable[NodeTopology]
    ) -> KnownShare | None:
        if not kind.profile:
            return None
        longer, source = self._spreads.get(kind.of_all), f"profile {kind.profile}"
        if longer is None:
            longer, source = self._spreads.get(kind), f"earlier runs of profile {kind.profile}"
        if longer is None:
            return None
        for topology in nodes:
            shares = self._near_and_far(topology, pattern, kind.gpus)
            share = None if shares is None else communication_by(longer, *shares)
            if share is not None:
                return KnownShare(told_apart(share), source)
        return None

    def _near_and_far(
        self, topology: NodeTopology, pattern: str, count: int
    ) -> tuple[float, float] | None:
        """Mean shares of the ideal bandwidth of sets on one socket, and over several.

        On which of these GPUs jobs ran is not known: any set is taken to be as likely.
        """
        key = (topology.shape, pattern, count)
        if key not in self._shares:
            self._shares[key] = self._found(topology, pattern, count)
        return self._shares[key]

    def _found(
        self, topology: NodeTopology, pattern: str, count: int
    ) -> tuple[float, float] | None:
        fitted = fitting(pattern, count)
        if not 1 < count <= topology.gpus or not is_tabulated(topology, fitted):
            return None
        table = self._tables.of(topology, fitted).sets(count)
        shares = share_of(table.effbw, table.ideal_effbw_gbps)
        sockets = domains(topology)
        is_near = [any(not mask & ~socket for socket in sockets) for mask in table.masks.tolist()]
        near = [share for share, one in zip(shares.tolist(), is_near, strict=True) if one]
        far = [share for share, one in zip(shares.tolist(), is_near, strict=True) if not one]
        if not near or not far:
            return None
        return sum(near) / len(near), sum(far) / len(far)


#: Where jobs' own hints are all that is known.
NOTHING_MEASURED: Mapping[Kind, float] = MappingProxyType({})
