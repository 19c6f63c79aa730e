"""The policies of MAPA (SC'21, section 3): match the application's pattern to the node's links."""

from __future__ import annotations

from policies.contract.hint_keys import (
    MIN_UTILITY,
    PACK,
    PATTERN,
    SENSITIVE,
    SPREAD,
    USUAL_COMMUNICATION,
    HintKey,
)
from policies.contract.nouns import Cluster, Placement, Request, Wait
from policies.contract.policy import UNKNOWN_SITE, LooksAt, Policy, Site
from policies.mapa.question import MapaQuestion
from policies.scoring.objectives import (
    AGGREGATE,
    BALANCED,
    EFFBW,
    PRESERVED,
    WIDEST,
    Objective,
    site_insensitive,
    site_sensitive,
)
from policies.scoring.tables import Tables, tables


class Mapa(Policy):
    """The default: balances effective bandwidth, the weakest link and what is left for others."""

    name = "mapa"
    hints: tuple[HintKey, ...] = (PATTERN, SENSITIVE, MIN_UTILITY, PACK, SPREAD)
    #: By what sets are ranked for jobs that feel slow links, and for those that do not.
    sensitive: Objective = BALANCED
    insensitive: Objective = PRESERVED

    def __init__(self, tables: Tables = tables) -> None:
        self.tables: Tables = tables

    def place(self, request: Request, cluster: Cluster) -> Placement | Wait:
        """Choose GPUs for one job that fits, or wait for its minimal utility."""
        asked = self._asked(request, cluster, USUAL_COMMUNICATION)
        return self._or_wait(request, asked.placement(self.name, asked.chosen()))

    def _asked(self, request: Request, cluster: Cluster, communication: float) -> MapaQuestion:
        """The question; `communication` is the share of its run time of a job that feels links."""
        objective, share = self._objective(request), communication if request.sensitive else 0.0
        return MapaQuestion(request, cluster, objective, self.tables, share)

    @staticmethod
    def _or_wait(request: Request, placement: Placement) -> Placement | Wait:
        if placement.utility < request.min_utility:
            return Wait(
                f"the best free GPUs have {placement.utility:.2f} of the bandwidth of the best GPUs"
                f" of an empty node, and the job asks for {request.min_utility:.2f}",
                instead=placement,
            )
        return placement

    def _objective(self, request: Request) -> Objective:
        alone = max(request.gpus_per_node) == 1
        return self.sensitive if request.sensitive or alone else self.insensitive


class MapaWidest(Mapa):
    """Gives up bandwidth sooner than it takes a PCIe hop."""

    name = "mapa-widest"
    sensitive = WIDEST


class MapaPreserve(Mapa):
    """The paper's Algorithm 1: sensitive jobs by effective bandwidth, others leave the most."""

    name = "mapa-preserve"
    sensitive = EFFBW


class MapaGreedy(Mapa):
    """Greedy of the paper: every job by the sum of its links."""

    name = "mapa-greedy"
    sensitive = insensitive = AGGREGATE


class MapaPreserveSite(Mapa):
    """Algorithm 1 that weighs what is left by what the site usually asks."""

    name = "mapa-preserve-site"
    looks_at = frozenset({LooksAt.USUAL_JOBS})

    def __init__(self, site: Site = UNKNOWN_SITE) -> None:
        super().__init__()
        self.sensitive = site_sensitive(site.usual_jobs)
        self.insensitive = site_insensitive(site.usual_jobs)

    @classmethod
    def build(cls, settings: None, site: Site) -> MapaPreserveSite:
        """For the sizes of jobs that the site usually has."""
        return cls(site)
