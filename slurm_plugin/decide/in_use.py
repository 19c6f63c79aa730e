"""The policies of one configuration: the registry's, and those that know the site."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from policies import Policy, topo_aware
from policies.registry import registry
from policies.scoring.interference import Kind
from slurm_plugin.config.settings import TopoAwareConfig
from slurm_plugin.job_profiles import Learned, interference, read_profiles

#: Slowdowns that differ by less are the same: new ones cost every solution that is kept.
STEP = 0.02


class InUse:
    """Policies by name; `others` stand in the place of the registry's.

    topo-aware is as the site set it; what its files say goes before what jobs taught.
    """

    def __init__(
        self, settings: TopoAwareConfig, learned: Learned, others: Iterable[Policy] = ()
    ) -> None:
        self._others = {policy.name: policy for policy in others}
        self._settings = topo_aware.Settings(
            weights=topo_aware.Weights(
                settings.communication, settings.interference, settings.fragmentation
            ),
            socket_memory_gbps=settings.socket_memory_gbps,
        )
        self._written = read_profiles(settings.profiles) if settings.profiles else {}
        self._learned = learned
        self._taught = _coarse(learned.slowdowns())
        self._ours = self._built()

    def __call__(self, name: str) -> Policy:
        """The policy of that name; RegistryError lists the names there are."""
        return self._ours.get(name) or self._others.get(name) or registry.get(name)

    def update(self) -> None:
        """Take over what jobs taught since, where it changes anything."""
        taught = _coarse(self._learned.slowdowns())
        if taught != self._taught:
            self._taught = taught
            self._ours = self._built()

    def _built(self) -> dict[str, Policy]:
        known = interference(self._written, self._taught)
        return {policy.name: policy for policy in topo_aware.policies(self._settings, known)}


def _coarse(slowdowns: Mapping[tuple[Kind, Kind], float]) -> dict[tuple[Kind, Kind], float]:
    return {pair: round(round(factor / STEP) * STEP, 4) for pair, factor in slowdowns.items()}
