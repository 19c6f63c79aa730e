"""The hardware noun: one immutable NodeTopology per kind of node.

Every reader of this folder returns one; every policy scores GPU sets of one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gres_topology.errors import TopologyError

#: A diagonal cell: a GPU and itself.
SELF = "X"
#: Paths from a GPU to a NIC, nearest first; whatever else there is (SYS) is farther.
_NIC_PATHS = ("PIX", "PXB", "PHB", "NODE")
#: Those of them that do not leave the GPU's own PCIe switch or tree of switches.
_BELOW_ONE_SWITCH = {"PIX", "PXB"}


def _distance(path: str) -> int:
    """0 for the nearest of the paths to a NIC, 4 for those across sockets."""
    return _NIC_PATHS.index(path) if path in _NIC_PATHS else len(_NIC_PATHS)


def _natural(part: str) -> tuple[int, str]:
    """So that mlx5_10 comes after mlx5_9."""
    return (int(part), "") if part.isdecimal() else (-1, part)


@dataclass(frozen=True, slots=True)
class NumaNode:
    """One NUMA node: its number, logical CPUs, memory and distances to the others.

    `distances` is keyed by NUMA node number, in the ACPI SLIT's unit (10 = local).
    """

    number: int
    cpus: tuple[int, ...] = ()
    memory_mb: int | None = None
    distances: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Nic:
    """One network interface and the kind of path from it to every GPU (index = GPU)."""

    name: str
    kinds: tuple[str, ...]
    pci: str | None = None
    numa: int | None = None
    #: The rail of the network that it is on: NICs of one rail meet at one leaf switch. None where
    #: that is not known, or for a NIC that is on none.
    rail: int | None = None
    #: Whether the switches of that rail reduce what passes them (NVIDIA's SHARP).
    sharp: bool = False


@dataclass(frozen=True, slots=True)
class Impairment:
    """A part of a node that is broken or slow.

    `gpus` are the two ends of a link, one GPU, or none for the node as a whole. `share` is what is
    left of the bandwidth (of all links of a GPU), or of what a node delivers; 0: broken.
    """

    gpus: tuple[int, ...]
    share: float
    #: Who says so, and why; for people.
    why: str = field(default="", compare=False)

    def text(self, names: Sequence[str | int] = ()) -> str:
        """`link 0-3 at 50 %`, `GPU 3 broken`; `names` are what to call the GPUs."""
        called = [str(names[gpu] if names else gpu) for gpu in self.gpus]
        left = f"at {100 * self.share:.3g} %" if self.share else "broken"
        if not called:
            return f"the node {left}"
        if len(called) == 2:
            return f"link {called[0]}-{called[1]} {left}"
        return f"GPU {called[0]}{' links' if self.share else ''} {left}"


@dataclass(frozen=True)
class NodeTopology:
    """GPUs of one kind of node, the links between them, and where they sit.

    `kinds[i][j]` is the label of the best path between GPUs i and j (`NV2`, `PIX`,
    `SYS`, `XGMI`, ...; `X` on the diagonal); `bandwidth_gbps` is the same matrix in
    GB/s per direction (float64, shape (gpus, gpus), zero diagonal, read-only).
    Per-GPU entries are None where the source does not say. `calibration` names a bandwidth
    model fitted to this kind of node (`policies.bandwidth.calibrated`); empty where there is none.
    Links are what `impairments` leave of them; `healthy` is the node without any, if it has some.

    Raises TopologyError if the parts do not fit together.
    """

    name: str
    source: str
    kinds: tuple[tuple[str, ...], ...]
    bandwidth_gbps: NDArray[np.float64] = field(repr=False, compare=False)
    numa: tuple[int | None, ...]
    cpus: tuple[tuple[int, ...] | None, ...]
    pci: tuple[str | None, ...] = ()
    minors: tuple[int | None, ...] = ()
    model: str | None = None
    nics: tuple[Nic, ...] = ()
    numa_nodes: tuple[NumaNode, ...] = ()
    threads_per_core: int | None = None
    calibration: str = ""
    impairments: tuple[Impairment, ...] = ()
    healthy: NodeTopology | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        n = len(self.kinds)
        for name in ("pci", "minors"):
            if not getattr(self, name):
                object.__setattr__(self, name, (None,) * n)
        for name in ("numa", "cpus", "pci", "minors"):
            if len(getattr(self, name)) != n:
                raise TopologyError(
                    f"{self.name}: {len(getattr(self, name))} entries in {name} for {n} GPUs;"
                    " expected one per GPU"
                )
        for nic in self.nics:
            if len(nic.kinds) != n:
                raise TopologyError(
                    f"{self.name}: {len(nic.kinds)} paths from NIC {nic.name} for {n} GPUs;"
                    " expected one per GPU"
                )
        matrix = np.array(self.bandwidth_gbps, dtype=np.float64)
        if matrix.shape != (n, n):
            raise TopologyError(f"{self.name}: bandwidth matrix {matrix.shape} for {n} GPUs")
        for i in range(n):
            if len(self.kinds[i]) != n:
                raise TopologyError(
                    f"{self.name}: row GPU{i} has {len(self.kinds[i])} cells of {n}"
                )
            for j in range(i):
                if self.kinds[i][j] != self.kinds[j][i] or matrix[i, j] != matrix[j, i]:
                    raise TopologyError(
                        f"{self.name}: GPU{i}-GPU{j} is {self.kinds[i][j]} one way and"
                        f" {self.kinds[j][i]} the other; expected a symmetric matrix"
                    )
                if not 0 < matrix[i, j] < np.inf:
                    raise TopologyError(
                        f"{self.name}: link {self.kinds[i][j]} of GPU{j}-GPU{i} carries"
                        f" {matrix[i, j]:g} GB/s; expected more than 0: all GPUs of a node"
                        " reach each other"
                    )
        known = [address for address in self.pci if address is not None]
        twice = next((address for address in known if known.count(address) > 1), None)
        if twice is not None:
            raise TopologyError(f"{self.name}: two GPUs at PCI address {twice}; expected each once")
        matrix.flags.writeable = False
        object.__setattr__(self, "bandwidth_gbps", matrix)

    @property
    def gpus(self) -> int:
        """How many GPUs the node has."""
        return len(self.kinds)

    @cached_property
    def shape(self) -> str:
        """A short digest of what placement depends on: links, bandwidths, NUMA nodes.

        A calibration counts too, where there is one, and so do impairments. Two nodes of equal
        shape share every precomputed table, whatever their name, PCI addresses or CPU numbers.
        """
        parts: list[object] = [self.kinds, self.bandwidth_gbps.tolist(), self.numa]
        parts += [self.calibration] if self.calibration else []
        parts += [[(one.gpus, one.share) for one in self.impairments]] if self.impairments else []
        text = json.dumps(parts)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @cached_property
    def bandwidth_mbps(self) -> NDArray[np.int64]:
        """`bandwidth_gbps` in whole MB/s, so that sums of equal links are equal; read-only."""
        whole = np.rint(self.bandwidth_gbps * 1000).astype(np.int64)
        whole.flags.writeable = False
        return whole

    @cached_property
    def widest_gbps(self) -> float:
        """The widest link; 1 where there is none, so that one may divide by it."""
        return float(self.bandwidth_gbps.max(initial=0.0)) or 1.0

    @cached_property
    def is_even(self) -> bool:
        """Whether all pairs of GPUs are joined alike and nothing is impaired: any set will do."""
        apart = self.bandwidth_gbps[~np.eye(self.gpus, dtype=bool)]
        return not self.impairments and bool((apart == apart[:1]).all())

    @cached_property
    def broken(self) -> int:
        """The GPUs that are broken (mask)."""
        return sum(
            1 << one.gpus[0] for one in self.impairments if len(one.gpus) == 1 and not one.share
        )

    @cached_property
    def lag_tenths(self) -> int:
        """How many tenths of what such a node delivers this one does not, 0 to 9."""
        delivers = min((one.share for one in self.impairments if not one.gpus), default=1.0)
        return min(9, round(10 * (1.0 - delivers)))

    @cached_property
    def lost(self) -> float:
        """The share of the bandwidth of all its links that a node has lost, [0, 1)."""
        if self.healthy is None:
            return 0.0
        return max(0.0, 1.0 - float(self.bandwidth_gbps.sum() / self.healthy.bandwidth_gbps.sum()))

    @cached_property
    def joined_gbps(self) -> tuple[tuple[float, ...], ...]:
        """GB/s by which each pair of GPUs is joined better than the node's worst joined one."""
        gbps = self.bandwidth_gbps
        worst = float(gbps[gbps > 0].min(initial=np.inf))
        return tuple(tuple(max(0.0, float(one) - worst) for one in row) for row in gbps)

    @cached_property
    def nic_distance(self) -> tuple[int, ...]:
        """For each GPU how far its nearest NIC is: 0 below one switch (PIX) to 4 (SYS).

        Empty where no NIC is known, or where all GPUs are equally far, so that it cannot matter.
        """
        distances = tuple(
            min(map(_distance, kinds))
            for kinds in zip(*(nic.kinds for nic in self.nics), strict=True)
        )
        return distances if len(set(distances)) > 1 else ()

    @property
    def declares_rails(self) -> bool:
        """Whether somebody said which rails the NICs are on; else `rails` are by distance."""
        return any(nic.rail is not None for nic in self.nics)

    @cached_property
    def sharp_rails(self) -> frozenset[int]:
        """The rails whose switches reduce."""
        return frozenset(nic.rail for nic in self.nics if nic.sharp and nic.rail is not None)

    @cached_property
    def rails(self) -> tuple[int, ...]:
        """The rail of the network that each GPU is on: that of its nearest NIC.

        GPUs with the same nearest NICs share them in turn. Where no NIC has a rail, the NICs that
        are below a GPU's own PCIe switch are a rail each, in the order of their names, if every
        GPU has one. Empty where nothing is known, or there is but one rail.
        """
        nics = [nic for nic in self.nics if nic.rail is not None]
        if not nics:
            nics = [nic for nic in self.nics if _BELOW_ONE_SWITCH & set(nic.kinds)]
            nics.sort(key=lambda nic: [*map(_natural, re.split(r"(\d+)", nic.name))])
        found: list[int] = []
        shared: dict[tuple[int, ...], int] = {}
        for gpu in range(self.gpus):
            distances = [_distance(nic.kinds[gpu]) for nic in nics]
            nearest = min(distances, default=len(_NIC_PATHS))
            if not nics or (not self.declares_rails and nearest > 1):
                return ()
            near = tuple(at for at, distance in enumerate(distances) if distance == nearest)
            turn = shared.get(near, 0)
            shared[near] = turn + 1
            at = near[turn % len(near)]
            rail = nics[at].rail
            found.append(at if rail is None else rail)
        return tuple(found) if len(set(found)) > 1 else ()

    @cached_property
    def runs(self) -> tuple[int, ...]:
        """The GPUs cut into runs of neighbours that can take each other's place, as masks.

        Swapping two GPUs of a run changes no link, no NUMA node and no way to a NIC.
        """
        masks = [1] if self.gpus else []
        for gpu in range(1, self.gpus):
            if self._are_alike(gpu - 1, gpu):
                masks[-1] |= 1 << gpu
            else:
                masks.append(1 << gpu)
        return tuple(masks)

    @cached_property
    def boards(self) -> tuple[tuple[int, ...], ...]:
        """The runs of several GPUs, those together that can take each other's place as a whole.

        Swapping two of them changes no link and no way to a NIC, but the NUMA nodes' names.
        """
        groups: list[list[int]] = []
        for run in self.runs:
            if run & run - 1:
                like = next((some for some in groups if self._swap(some[0], run)), None)
                groups.append([run]) if like is None else like.append(run)
        return tuple(map(tuple, groups))

    def _swap(self, one: int, other: int) -> bool:
        """Whether two runs can take each other's place."""
        if one.bit_count() != other.bit_count():
            return False
        # Within a run, and from it to any other, all links are equal: its first GPUs stand for it.
        a, b = ((run & -run).bit_length() - 1 for run in (one, other))
        rest = [gpu for gpu in range(self.gpus) if not (one | other) >> gpu & 1]
        pairs = [((a, gpu), (b, gpu)) for gpu in rest] + [((a, a + 1), (b, b + 1))]
        links = self.bandwidth_gbps
        same_nic = self.nic_distance[a : a + 1] == self.nic_distance[b : b + 1]
        return same_nic and all(
            self.kinds[i][j] == self.kinds[k][m] and links[i, j] == links[k, m]
            for (i, j), (k, m) in pairs
        )

    def _are_alike(self, one: int, other: int) -> bool:
        rest = [gpu for gpu in range(self.gpus) if gpu not in (one, other)]
        links = self.bandwidth_gbps[:, rest]
        places = [(self.numa[gpu], *self.nic_distance[gpu : gpu + 1]) for gpu in (one, other)]
        kinds = [[self.kinds[gpu][at] for at in rest] for gpu in (one, other)]
        return (
            places[0] == places[1]
            and kinds[0] == kinds[1]
            and bool((links[one] == links[other]).all())
        )

    def __hash__(self) -> int:
        return hash(self.shape)
