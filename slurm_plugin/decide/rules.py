"""Which rule applies to a job: its partition's, then its account's, then its user's.

Mode, policy and default hints are laid over each other, the user's last. A user's limits
(`users_may_set`) replace the account's, an account's the partition's.
"""

from __future__ import annotations

import logging
import pwd
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from slurm_plugin.config.sections import Personal, Rule
from slurm_plugin.config.settings import Config

logger = logging.getLogger(__name__)

#: Combinations kept; a name a client made up must not fill the engine.
MAX_KEPT = 4096


class Rules:
    """The rules of one configuration; user names are looked up once, when it is loaded."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._users = _by_uid(config.users)
        self._rule = lru_cache(MAX_KEPT)(self._for)

    def __call__(self, partition: str, account: str = "", uid: int = -1) -> Rule:
        """The rule for a job of this partition (or list of partitions), account and user."""
        return self._rule(partition, account, uid)

    def _for(self, partition: str, account: str, uid: int) -> Rule:
        found = self._config.rule(partition)
        for personal in (self._config.accounts.get(account), self._users.get(uid)):
            found = _laid_over(found, personal) if personal else found
        return found


def _laid_over(rule: Rule, personal: Personal) -> Rule:
    may_set = personal.users_may_set
    return replace(
        rule,
        mode=personal.mode or rule.mode,
        policy=personal.policy or rule.policy,
        hints={**rule.hints, **personal.hints},
        users_may_set=rule.users_may_set if may_set is None else may_set,
    )


def _by_uid(users: Mapping[str, Personal]) -> dict[int, Personal]:
    """Rules by uid. A user this host does not know costs a warning, not the configuration."""
    found = {}
    for name, personal in users.items():
        try:
            found[int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid] = personal
        except KeyError:
            logger.warning("users.%s: no such user on this host; the rule is left out", name)
    return found
