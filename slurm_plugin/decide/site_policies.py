"""The policies of one configuration: built with its settings and with what the site knows."""

from __future__ import annotations

from policies import LooksAt, Policy, Site
from policies.contract.interference import Interference
from policies.registry import registry
from slurm_plugin.config.settings import Config
from slurm_plugin.decide.usual_jobs import learned as learned_shares
from slurm_plugin.errors import ConfigError
from slurm_plugin.learn.job_profiles import Learned, interference, read_profiles
from slurm_plugin.learn.job_profiles.learned import coarse


class SitePolicies:
    """Policies by name. Slowdowns in the site's profile files go before those that jobs taught."""

    def __init__(self, config: Config, learned: Learned) -> None:
        self._settings = {section: getattr(config, section) for section in registry.sections}
        declared = [registry.declared(name) for name in registry.names()]
        asked_for = any(LooksAt.USUAL_JOBS in policy.looks_at for policy in declared)
        given = config.usual_jobs if asked_for else ()
        self._usual = learned_shares(config.decision_log) if isinstance(given, str) else given
        self._profiles = read_profiles(config.topo_aware.profiles)
        self._learned = learned
        bounds = config.waiting
        self._longest_wait_s = min(bounds.max_wait_s, bounds.max_postponements * bounds.step_s)
        self._taught, self._spreads = coarse(learned.slowdowns()), coarse(learned.spreads())
        self._policies = self._built(*registry.names())

    def __call__(self, name: str) -> Policy:
        """The policy of that name; RegistryError lists the names there are."""
        return self._policies.get(name) or registry.get(name)

    def update(self) -> None:
        """Take over what jobs taught since, where it changes anything."""
        taught, spreads = coarse(self._learned.slowdowns()), coarse(self._learned.spreads())
        new = set()
        if taught != self._taught:
            new.add(LooksAt.INTERFERENCE)
        if spreads != self._spreads:
            new.add(LooksAt.SPREADS)
        if new:
            self._taught, self._spreads = taught, spreads
            changed = (n for n, p in self._policies.items() if new & p.looks_at)
            self._policies = self._policies | self._built(*changed)

    def interference(self) -> Interference:
        """How much jobs slow each other, as the site wrote and jobs taught."""
        return self._interference

    def _built(self, *names: str) -> dict[str, Policy]:
        """Raises ConfigError where a policy cannot be built of what the site set."""
        self._interference = interference(self._profiles.slowdowns, self._taught)
        spreads = {**self._spreads, **self._profiles.spreads}
        site = Site(self._usual, self._interference, self._longest_wait_s, spreads)
        policies = {}
        for name in names:
            try:
                policies[name] = registry.build(name, self._settings, site)
            except Exception as error:  # a third party's code
                raise ConfigError(f"policy {name} cannot be built: {error!r}") from error
        return policies
