"""How much jobs that share a socket slow each other: as measured, else by batch size.

TOPO-AWARE (Amaral et al., SC17), sections 3.3 and 4.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from policies.contract.nouns import Request, RunningJob

#: No user's, as a uid.
NOBODY = -1
#: Section 3.3: "up to about 30 %".
WORST = 1.30
#: Upper ends of the paper's classes tiny, small and medium; above is big. Figure 4: 1 and 2
#: behave alike, and over 16 the placement makes no difference.
TINY, SMALL, MEDIUM = 2, 16, 64
#: Section 3.3, figure 6: beside a big batch a tiny one takes 24 % longer, a small one 21 %,
#: larger ones "very small or nonexistent". Their mean where the batch size is not known.
TINY_SLOWED, SMALL_SLOWED = 1.24, 1.21
UNKNOWN_SLOWED = (TINY_SLOWED + SMALL_SLOWED + 1.0 + 1.0) / 4


class Kind(NamedTuple):
    """A kind of job: jobs of one kind slow others, and are slowed by them, alike."""

    #: Empty: none given.
    profile: str = ""
    #: 0: unknown.
    batch: int = 0
    gpus: int = 0
    #: Whose jobs they are (uid): anybody may call a job anything, so what was learned under a name
    #: counts for its user alone. NOBODY: measured by the site, for all.
    user: int = NOBODY

    @property
    def of_all(self) -> Kind:
        """The same for any user."""
        return self._replace(user=NOBODY)


def kind_of_request(request: Request) -> Kind:
    """The kind of a job that asks."""
    batch = int(request.options.get("batch", "0"))
    return _kind(
        request.options.get("profile", ""), batch, sum(request.gpus_per_node), request.user
    )


def kind_of_running(job: RunningJob) -> Kind:
    """The kind of a job that runs."""
    gpus = sum(mask.bit_count() for mask in job.gpus.values())
    return _kind(job.profile or "", job.batch or 0, gpus, job.user)


def _kind(profile: str, batch: int, gpus: int, user: int | None) -> Kind:
    """A job that does not say what it is is like anybody's."""
    return Kind(profile, batch, gpus, NOBODY if user is None or not profile else user)


def weight_of(batch: int) -> int:
    """The job graph's edge weight (section 5.1): 4 for the smallest batches to 1."""
    if batch <= TINY:
        return 4
    return 3 if batch <= SMALL else 2 if batch <= MEDIUM else 1


def default_factor(batch: int) -> float:
    """How many times longer a job of this batch size takes beside another, unmeasured."""
    if batch <= 0:
        return UNKNOWN_SLOWED
    return TINY_SLOWED if batch <= TINY else SMALL_SLOWED if batch <= SMALL else 1.0


@dataclass(frozen=True, slots=True)
class Interference:
    """Slowdown of one kind beside another; `measured` overrides the default by batch size."""

    measured: Mapping[tuple[Kind, Kind], float] = field(default_factory=lambda: _NOTHING)
    _known: frozenset[Kind] = field(init=False, repr=False, default=frozenset())

    def __post_init__(self) -> None:
        known = frozenset(kind for pair in self.measured for kind in pair)
        object.__setattr__(self, "_known", known)

    def factor(self, kind: Kind, other: Kind) -> float:
        """How many times longer `kind` takes beside `other` on one socket: 1 to `WORST`."""
        if not self.measured:
            return default_factor(kind.batch)
        measured = self.measured.get((kind.of_all, other.of_all))
        if measured is None:
            measured = self.measured.get((kind, other))
        if measured is None:
            return default_factor(kind.batch)
        return min(WORST, max(1.0, measured))

    def told_apart(self, kind: Kind) -> Kind:
        """The kind itself where it was measured, else the one for all that behave alike."""
        for known in (kind, kind.of_all) if self._known else ():
            if known in self._known:
                return known
        batch = kind.batch
        if batch > 0:
            batch = TINY if batch <= TINY else SMALL if batch <= SMALL else MEDIUM
        return Kind("", batch, 0)


_NOTHING: Mapping[tuple[Kind, Kind], float] = MappingProxyType({})
