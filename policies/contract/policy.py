"""What a policy is: one class that declares what it needs and places one job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, Self

from policies.contract.demand import Shares
from policies.contract.hint_keys import HintKey
from policies.contract.interference import Interference, Kind
from policies.contract.nouns import Cluster, Placement, Request, Wait


class LooksAt(Enum):
    """What a policy goes by beside the request and the nodes. Others are spared the reading."""

    #: Who runs where: `Cluster.jobs` is filled in.
    RUNNING_JOBS = "running jobs"
    #: Who waits and what comes free: `Cluster.ahead` is filled in.
    QUEUE = "queue"
    #: How much jobs slow each other: `Site.interference`; the policy is built anew as more of
    #: that is learned.
    INTERFERENCE = "interference"
    #: How large the site's jobs are: `Site.usual_jobs`.
    USUAL_JOBS = "usual jobs"
    #: How much longer jobs take over several sockets: `Site.spreads`; built anew as the above.
    SPREADS = "spreads"


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """What is known of the site when its policies are built."""

    #: Shares of the jobs by GPUs per node; empty: not known.
    usual_jobs: Shares = ()
    #: Slowdowns measured on site; without any, the paper's by batch size.
    interference: Interference = field(default_factory=Interference)
    #: How long a policy may postpone a job in all (seconds).
    longest_wait_s: float = 600.0
    #: How many times as long jobs of a kind take, alone, on GPUs of several sockets as of one.
    spreads: Mapping[Kind, float] = field(default_factory=dict)


#: A site of which nothing is known.
UNKNOWN_SITE = Site()


class HasSize(Protocol):
    """What several policies compute once and share; its size is shown by `gputopo status`."""

    def size_bytes(self) -> int:
        """Memory it takes."""
        ...


class Policy(ABC):
    """One policy: what it declares as class attributes, and one method.

    The registry reads the declarations from the class; nothing else has to know of the policy.
    """

    #: What users write in `policy=NAME` and sites in gputopo.yaml.
    name: str
    #: The hint keys that have an effect; a key of its own stands here, too.
    hints: tuple[HintKey, ...] = ()
    looks_at: frozenset[LooksAt] = frozenset()
    #: A frozen dataclass of `setting` fields; None: nothing can be set.
    settings: type | None = None
    #: The section of gputopo.yaml that holds them; empty: the name with underscores.
    section: str = ""
    #: HasSize it shares with other policies, where it has some.
    tables: HasSize | None = None

    @classmethod
    def build(cls, settings: Any, site: Site) -> Self:
        """The policy for one configuration; `settings` is an instance of `cls.settings`."""
        return cls()

    @abstractmethod
    def place(self, request: Request, cluster: Cluster) -> Placement | Wait:
        """Choose GPUs for one job that fits, or say why it should wait.

        The input is valid (the caller checked it); exceptions are for bugs. The same question
        always gets the same answer: ties break by node name, then by the lowest GPU index.
        """
