"""Policies by name: ours explicitly, third parties' by the entry point group `gputopo.policies`.

A third party's plugin that cannot be loaded, is no policy, or takes a name that is taken is logged
and skipped.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType

from policies.best_fit import BestFit
from policies.contract.hint_keys import KEYS, HintKey
from policies.contract.policy import UNKNOWN_SITE, Policy, Site
from policies.errors import RegistryError
from policies.first_fit import Fcfs, FirstFit
from policies.genie.gpus import GenieGpus
from policies.horizon import Horizon
from policies.mapa import Mapa, MapaGreedy, MapaPreserve, MapaPreserveSite, MapaWidest
from policies.topo_aware import TopoAware, TopoAwareP

#: The policies of this project.
OURS: tuple[type[Policy], ...] = (
    *(Mapa, MapaWidest, MapaPreserve, MapaPreserveSite, MapaGreedy),
    Horizon,
    *(FirstFit, Fcfs, BestFit),
    *(TopoAware, TopoAwareP),
    GenieGpus,
)
#: The entry point group third parties register under.
GROUP = "gputopo.policies"
#: The policy of a job that asks for none, where the site names none either.
DEFAULT = "horizon"

#: Takes the name of a section of gputopo.yaml and a settings class; raises where they cannot be.
Check = Callable[[str, type], None]

_NAME = re.compile(r"[a-z][a-z0-9-]{0,40}")
_NO_SETTINGS: Mapping[str, object] = MappingProxyType({})

_log = logging.getLogger(__name__)


class Registry:
    """Names -> policies. Every name is registered once."""

    def __init__(self, policies: Iterable[type[Policy]] = ()) -> None:
        self._policies: dict[str, type[Policy]] = {}
        self._hints: dict[str, frozenset[str]] = {}
        self._sections: dict[str, type] = {}
        self._keys = dict(KEYS)
        self._built: dict[str, Policy] = {}
        for policy in policies:
            self.register(policy)

    @property
    def keys(self) -> Mapping[str, HintKey]:
        """Every hint key by name: ours in the order of a hint's canonical text, then others'."""
        return self._keys

    @property
    def sections(self) -> Mapping[str, type]:
        """The sections of gputopo.yaml that policies declare, with their settings classes."""
        return self._sections

    def register(self, policy: type[Policy], check: Check | None = None) -> None:
        """Add a policy under its own name; RegistryError where its declarations cannot be.

        `check` raises where a section of that name cannot hold settings of that class.
        """
        if not (inspect.isclass(policy) and issubclass(policy, Policy)):
            raise RegistryError(f"{policy!r} is no policy: expected a subclass of policies.Policy")
        name = getattr(policy, "name", None)
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise RegistryError(f"{policy!r}: its `name` is {name!r}; expected a word such as mine")
        if name in self._policies:
            raise RegistryError(
                f"a policy named {name!r} is registered already"
                f" ({self._policies[name].__name__}); choose another name"
            )
        for key in policy.hints:
            if not _NAME.fullmatch(key.name) or self._keys.get(key.name, key) != key:
                raise RegistryError(f"policy {name}: the hint key {key.name!r} has another meaning")
        section, settings = section_of(policy), policy.settings
        if settings is not None:
            if self._sections.get(section, settings) != settings:
                raise RegistryError(f"policy {name}: the section {section!r} is another's already")
            if check is not None:
                check(section, settings)
            self._sections[section] = settings
        self._keys |= {key.name: key for key in policy.hints}
        self._hints[name] = frozenset(key.name for key in policy.hints)
        self._policies[name] = policy

    def get(self, name: str) -> Policy:
        """The policy with default settings, for a site of which nothing is known.

        RegistryError lists the names there are.
        """
        policy = self._built.get(name)
        if policy is None:
            policy = self._built[name] = self.build(name)
        return policy

    def build(
        self, name: str, settings: Mapping[str, object] = _NO_SETTINGS, site: Site = UNKNOWN_SITE
    ) -> Policy:
        """A policy for one configuration: `settings` by section, defaults for those missing."""
        policy = self.declared(name)
        own = settings.get(section_of(policy))
        if own is None and policy.settings is not None:
            own = policy.settings()
        return policy.build(own, site)

    def declared(self, name: str) -> type[Policy]:
        """What a policy declares; RegistryError lists the names there are."""
        try:
            return self._policies[name]
        except KeyError:
            raise RegistryError(
                f"no policy named {name!r}: expected one of {', '.join(self.names())}"
            ) from None

    def names(self) -> tuple[str, ...]:
        """All names, in the order of registration."""
        return tuple(self._policies)

    def hints_of(self, name: str) -> frozenset[str]:
        """The hint keys that have an effect under this policy."""
        hints = self._hints.get(name)
        return self._hints[self.declared(name).name] if hints is None else hints

    def load_plugins(
        self, entries: Iterable[EntryPoint] | None = None, check: Check | None = None
    ) -> tuple[str, ...]:
        """Register third parties' policies; the names of those that were added."""
        added = []
        for entry in entry_points(group=GROUP) if entries is None else entries:
            try:
                policy = entry.load()
                self.register(policy, check)
            except Exception as error:  # whatever a plugin does wrong is its own affair
                _log.warning("policy plugin %s (%s) skipped: %s", entry.name, entry.value, error)
            else:
                added.append(policy.name)
        return tuple(added)


def section_of(policy: type[Policy]) -> str:
    """The section of gputopo.yaml that holds a policy's settings."""
    return policy.section or policy.name.replace("-", "_")


#: The registry a process uses; `load_plugins()` is the caller's to call, once, at start.
registry = Registry(OURS)
