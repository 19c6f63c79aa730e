"""The one hint grammar: what a user writes after `--gpu-topo=` or `gpu-topo:`.

hint  = "" | "off" | item ("," item)*
item  = key "=" value | flag
of printable ASCII without `[`, `]` and `|`, at most MAX_BYTES.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from gres_topology.errors import did_you_mean
from policies.contract.hint_keys import COMMUNICATION, POLICY, PROFILE, HintKey
from policies.contract.nouns import Request, RunningJob
from policies.errors import HintError, RegistryError
from policies.patterns.pattern import PATTERNS
from policies.registry import DEFAULT, Registry
from policies.registry import registry as installed

#: Longest hint in bytes.
MAX_BYTES = 1024
#: The whole hint that opts a job out.
OFF = "off"
_NO_PATTERNS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Hints:
    """A hint that was understood: keys and canonical values, in the order of `Registry.keys`."""

    values: Mapping[str, str] = field(default_factory=dict)
    off: bool = False

    def __str__(self) -> str:
        """The canonical text; parsing it gives the same hints."""
        return OFF if self.off else ",".join(f"{key}={value}" for key, value in self.values.items())


def parse(
    text: str,
    policies: Registry = installed,
    default_policy: str = DEFAULT,
    patterns: Collection[str] = (),
) -> Hints:
    """Read a hint. HintError is one line that names the key and lists what is allowed.

    A key must have an effect under the policy that will decide (the hint's own, else
    `default_policy`), or it is refused. `patterns` are the site's own, beside ours.
    """
    stripped = _bounded(text).strip()
    if stripped in ("", OFF):
        return Hints(off=stripped == OFF)
    given: dict[str, str] = {}
    for item in stripped.split(","):
        key, value = _item(item.strip(), policies, patterns)
        if key.name in given:
            raise HintError(f"{key.name}: given twice; expected once")
        given[key.name] = value
    if given.get("pack") == given.get("spread") == "yes":
        raise HintError("spread: cannot go with pack; expected one of them")
    _check_effect(given, policies, default_policy)
    return Hints({name: given[name] for name in policies.keys if name in given})


def supported_keys(policies: Registry = installed) -> tuple[str, ...]:
    """The keys that have an effect: at launch, by the engine, or under a policy; in order."""
    used = frozenset[str]().union(*(policies.hints_of(name) for name in policies.names()))
    return tuple(name for name, key in policies.keys.items() if key.reader or name in used)


def _bounded(text: str) -> str:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise HintError(f"hint of {size} bytes; expected at most {MAX_BYTES}")
    # Brackets and bars delimit the records in which the hint is to stand.
    bad = next((char for char in text if not " " <= char <= "~" or char in "[]|"), None)
    if bad is not None:
        shown = f"'{bad}'" if bad in "[]|" else f"character U+{ord(bad):04X}"
        raise HintError(f"{shown} in the hint; expected printable ASCII without [, ] and |")
    return text


def _item(item: str, policies: Registry, patterns: Collection[str] = ()) -> tuple[HintKey, str]:
    name, equals, value = (part.strip() for part in item.partition("="))
    if name == OFF:
        raise HintError("off: stands alone; expected no other key beside it")
    key = policies.keys.get(name)
    if key is None:
        known = ", ".join([*supported_keys(policies), OFF])
        guess = did_you_mean(name, known.split(", "))
        raise HintError(f"unknown key {_shown(name)}; expected one of {known}{guess}")
    if not equals and key.flag:
        return key, "yes"
    own = patterns if key.name == "pattern" else ()
    read = value if value in own else key.read(value) if equals else None
    if read is None:
        given = _shown(value) if equals else "no value"
        raise HintError(f"{key.name}: {given}; expected {', '.join([key.allowed, *own])}")
    return key, read


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _check_effect(given: Mapping[str, str], policies: Registry, default_policy: str) -> None:
    name = given.get("policy", default_policy)
    if name not in policies.names():
        raise HintError(f"policy: {name!r}; expected one of {', '.join(policies.names())}")
    effective = policies.hints_of(name)
    for key in given:
        declared = policies.keys[key]
        if declared.reader or key in effective or given.get(declared.beside, "no") != "no":
            continue
        users = [other for other in policies.names() if key in policies.hints_of(other)]
        if not users:
            raise HintError(f"{key}: not supported by the installed policies; leave it out")
        raise HintError(
            f"{key}: has no effect with policy {name}; expected policy={' or policy='.join(users)}"
        )


def policy_of(hints: Hints, defaults: Mapping[str, str] | None = None) -> str:
    """The name of the policy that decides: the hint's, else the site's, else ours."""
    return hints.values.get("policy") or (defaults or {}).get("policy") or DEFAULT


def to_request(
    hints: Hints,
    counts: tuple[int, ...],
    defaults: Mapping[str, str] | None = None,
    *,
    job_id: int | None = None,
    user: int | None = None,
    interactive: bool = False,
    policies: Registry = installed,
    patterns: Mapping[str, str] = _NO_PATTERNS,
) -> Request:
    """What the policy is asked: the hint over the site's defaults over ours.

    `counts` is one GPU count per node. `defaults` holds hint keys as a site wrote them
    (HintError where they are wrong); those without effect under the policy that decides
    are left out, since the user did not write them. `patterns` are the site's own: the
    names people write, and those `policies.patterns.pattern` knows them by.
    """
    name = policy_of(hints, defaults)
    try:
        effective = policies.hints_of(name) | {POLICY.name}
    except RegistryError as error:
        raise HintError(f"policy: {error}") from None
    given = (defaults or {}).items()
    site = {key: _item(f"{key}={value}", policies, patterns)[1] for key, value in given}
    values = {key: value for key, value in site.items() if key in effective}
    values.update(hints.values)
    pattern = values.pop("pattern", "ring")
    return Request(
        gpus_per_node=tuple(sorted(counts, reverse=True)),
        job_id=job_id,
        user=user,
        interactive=interactive,
        pattern=patterns.get(pattern, pattern),
        sensitive=values.pop("sensitive", "yes") == "yes",
        min_utility=float(values.pop("min-utility", "0")),
        options={key: value for key, value in values.items() if not policies.keys[key].reader},
    )


def to_running(
    values: Mapping[str, str],
    job_id: int,
    masks: Mapping[str, int],
    user: int | None = None,
    *,
    shares: bool = False,
) -> RunningJob:
    """A job with these GPUs (masks by node) as others see it; `values` are its hint's."""
    return RunningJob(
        job_id,
        masks,
        profile=values.get("profile"),
        batch=int(values["batch"]) if "batch" in values else None,
        memory_gbps=float(values.get("memory-bandwidth", "0")),
        user=user,
        shares=shares,
        untold=_untold_pattern(values),
    )


def _untold_pattern(values: Mapping[str, str]) -> str:
    """Which ranks talk to which where nothing says how much.

    A site's own pattern may be another one by the time that the job ends: it tells nothing.
    """
    says = COMMUNICATION.name in values or PROFILE.name in values
    pattern = values.get("pattern", "ring")
    is_untold = not says and values.get("sensitive", "yes") == "yes" and pattern in PATTERNS
    return pattern if is_untold else ""
