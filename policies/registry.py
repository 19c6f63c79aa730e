"""Policies by name: ours explicitly, third parties' by the entry point group.

A third party adds to its own packaging `[gputopo.policies] my-name = my_module:MyPolicy`
(a class to be called without arguments, or an instance). A plugin that cannot be loaded,
is no policy, or takes a name that is taken is logged and skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from policies.best_fit import BestFit
from policies.contract.nouns import Policy
from policies.errors import RegistryError
from policies.first_fit import FirstFit
from policies.genie.gpus import GENIE
from policies.mapa import MAPA, MAPA_GREEDY, MAPA_PRESERVE, MAPA_PRESERVE_SITE, MAPA_WIDEST
from policies.topo_aware import TOPO_AWARE, TOPO_AWARE_P

#: The entry point group third parties register under.
GROUP = "gputopo.policies"
#: The policy of a job that asks for none, where the site names none either.
DEFAULT = "mapa"

_log = logging.getLogger(__name__)


class Registry:
    """Names -> policies. Every name is registered once."""

    def __init__(self, policies: Iterable[Policy] = ()) -> None:
        self._policies: dict[str, Policy] = {}
        for policy in policies:
            self.register(policy)

    def register(self, policy: Policy) -> None:
        """Add a policy under its own name; RegistryError if that name is taken."""
        name = getattr(policy, "name", None)
        if not isinstance(name, str) or not callable(getattr(policy, "place", None)):
            raise RegistryError(
                f"{policy!r} is no policy: expected an object with `name` and `place`"
            )
        if name in self._policies:
            raise RegistryError(
                f"a policy named {name!r} is registered already"
                f" ({type(self._policies[name]).__name__}); choose another name"
            )
        self._policies[name] = policy

    def get(self, name: str) -> Policy:
        """The policy of that name; RegistryError lists the names there are."""
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
        return frozenset(getattr(self.get(name), "hints", frozenset()))

    def load_plugins(self, found: Iterable[EntryPoint] | None = None) -> tuple[str, ...]:
        """Register third parties' policies; the names of those that were added."""
        added = []
        for entry in entry_points(group=GROUP) if found is None else found:
            try:
                loaded = entry.load()
                policy = loaded() if isinstance(loaded, type) else loaded
                self.register(policy)
            except Exception as error:  # whatever a plugin does wrong is its own affair
                _log.warning("policy plugin %s (%s) skipped: %s", entry.name, entry.value, error)
            else:
                added.append(policy.name)
        return tuple(added)


def built_in() -> Registry:
    """A registry with the policies of this project."""
    mapa = (MAPA, MAPA_WIDEST, MAPA_PRESERVE, MAPA_PRESERVE_SITE, MAPA_GREEDY)
    topo_aware = (TOPO_AWARE, TOPO_AWARE_P)
    return Registry((*mapa, FirstFit(), FirstFit("fcfs"), BestFit(), *topo_aware, GENIE))


#: The registry a process uses; `load_plugins()` is the caller's to call, once, at start.
registry = built_in()
