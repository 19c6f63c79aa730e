"""What one job prefers: its own hint over the partition's defaults, within what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from policies import Request, hints
from policies.errors import HintError
from policies.registry import registry
from slurm_plugin.config.sections import Rule
from slurm_plugin.errors import PluginError

#: Hints that are remembered; of more all are forgotten.
MOST_HINTS = 1024


class HintRefused(PluginError):
    """The hint is refused; the text is the one line the user reads."""


@dataclass(frozen=True, slots=True)
class Preferences:
    """A hint that was understood, over the defaults."""

    #: The name of the policy that decides.
    policy: str
    #: The hint in its canonical form.
    text: str
    #: The job is to get Slurm's own choice.
    off: bool
    _hints: hints.Hints
    _rule: Rule

    @property
    def values(self) -> Mapping[str, str]:
        """Keys and values, the hint's over the site's defaults, as far as the policy reads them."""
        read = registry.hints_of(self.policy)
        defaults = {key: value for key, value in self._rule.hints.items() if key in read}
        return {**defaults, **self._hints.values}

    @property
    def remote(self) -> bool:
        """May it borrow GPUs of other nodes, by its hint, its rule, or as one of an R queue?"""
        return self._rule.lends and not self.off and self._remote != "no"

    @property
    def asks_for_remote(self) -> bool:
        """Does its own hint ask for that?"""
        return self.remote and self._hints.values.get("remote", "no") != "no"

    @property
    def may_be_requeued(self) -> bool:
        """Does its own hint allow that it is put back into the queue to make room?"""
        return "movable" in self._hints.values

    @property
    def is_auto(self) -> bool:
        """Is it to borrow only where that is predicted to end it sooner?"""
        return self.remote and self._remote == "auto"

    @property
    def _remote(self) -> str:
        rule = self._rule
        default = rule.hints.get("remote", "allow" if rule.is_r_queue else "no")
        return self._hints.values.get("remote", default)

    @property
    def profile(self) -> str:
        """The name under which the job's behaviour is known; '' where it gives none."""
        return self._hints.values.get("profile", self._rule.hints.get("profile", ""))

    def request(
        self,
        counts: tuple[int, ...],
        job_id: int | None,
        user: int | None = None,
        interactive: bool = False,
    ) -> Request:
        """What the policy is asked for `counts` GPUs per node, largest first."""
        defaults = {**self._rule.hints, "policy": self._rule.policy}
        patterns = self._rule.patterns
        return hints.to_request(
            self._hints,
            counts,
            defaults,
            job_id=job_id,
            user=user,
            interactive=interactive,
            patterns=patterns,
        )


#: Hints that were understood, by text and the rule's identity; the rule is kept, so that it stays.
_understood: dict[tuple[str, int], tuple[Rule, Preferences]] = {}


def read_preferences(text: str, rule: Rule) -> Preferences:
    """The preferences behind a hint (empty: the partition's defaults); raises HintRefused."""
    known = _understood.get((text, id(rule)))
    if known is None:
        if len(_understood) >= MOST_HINTS:
            _understood.clear()
        known = _understood[text, id(rule)] = rule, _read(text, rule)
    return known[1]


def _read(text: str, rule: Rule) -> Preferences:
    try:
        found = hints.parse(text, default_policy=rule.policy, patterns=rule.patterns)
    except HintError as error:
        raise HintRefused(str(error)) from error
    if rule.users_may_set is not None:
        for key in found.values:
            if key not in rule.users_may_set:
                allowed = ", ".join([*rule.users_may_set, hints.OFF])
                raise HintRefused(f"{key}: not allowed for this job; expected one of {allowed}")
    if found.values.get("remote", "no") != "no" and not rule.lends:
        raise HintRefused("remote: GPUs of other nodes are not lent here; expected remote=no")
    policy = hints.policy_of(found, {"policy": rule.policy})
    return Preferences(policy, str(found), found.off, found, rule)
