"""Effective bandwidth: what a collective is predicted to reach on a set of GPUs, in GB/s.

Four models: `calibrated`, a site's own, for machines it measured; `mapa-dgx1v`, the regression of
MAPA (SC'21, eq. 2 and Table 2), only where it was fitted; `cables`, several rings on meshes; and
`rings` for any machine. Numbers of two models are never compared: a utility divides by the ideal
of the same model.
"""

from __future__ import annotations

import numpy as np

from gres_topology import NodeTopology
from gres_topology.links import is_direct
from policies.bandwidth.base import BandwidthModel
from policies.bandwidth.cables import Cables
from policies.bandwidth.calibrated import CalibratedBandwidth
from policies.contract.bits import Floats, Ints, members
from policies.matching.links import MB_PER_GB, RING_EFFICIENCY

#: Table 2: θ1..θ14, the coefficients of eq. 2's terms in the order of `eq2_terms`.
TABLE_2 = (
    *(16.396, 4.536, 1.556, -20.694, -9.467, 7.615, -7.973),
    *(12.733, -4.195, -8.413, 62.851, 27.418, -5.114, -46.973),
)

#: Sizes the regression was fitted on.
_FITTED_SIZES = range(2, 6)
#: The links it was fitted on: label -> GB/s (Volta's NVLink 2; Table 1).
_FITTED_LINKS = {"NV2": 50.0, "NV1": 25.0}


def eq2_terms(x: int, y: int, z: int) -> tuple[float, ...]:
    """The 14 terms of MAPA's eq. 2 for x double and y single NVLinks and z PCIe links."""
    xy, yz, zx, xyz = x * y, y * z, z * x, x * y * z
    return (
        *(x, y, z),
        *(1 / (x + 1), 1 / (y + 1), 1 / (z + 1)),
        *(xy, yz, zx),
        *(1 / (xy + 1), 1 / (yz + 1), 1 / (zx + 1)),
        *(xyz, 1 / (xyz + 1)),
    )


def eq2(x: int, y: int, z: int) -> float:
    """MAPA's predicted effective bandwidth of x double and y single NVLinks and z PCIe, GB/s."""
    return sum(theta * term for theta, term in zip(TABLE_2, eq2_terms(x, y, z), strict=True))


def ring_orders(k: int) -> Ints:
    """All rings of k >= 3 as closed index paths from 0, shape (orders, k + 1); k = 2: a link."""
    if k == 2:
        return np.array([[0, 1]], dtype=np.int64)
    rows: list[tuple[int, ...]] = [(0,)]
    for rank in range(1, k):
        rows = [(*row[:at], rank, *row[at:]) for row in rows for at in range(1, len(row) + 1)]
    kept = sorted(row for row in rows if row[1] < row[-1])
    return np.array([(*row, 0) for row in kept], dtype=np.int64)


class MapaDgx1v(BandwidthModel):
    """MAPA's regression: rings of 2 to 5 GPUs over NV2, NV1 and PCIe on a Volta DGX-1.

    Fitted on 31 NCCL allocations of one machine. Elsewhere it goes wrong: complete graphs of five
    GPUs come out negative, and eight GPUs on PCIe above eight with NVLinks.
    """

    name = "mapa-dgx1v"

    def refusal(self, topology: NodeTopology, pattern: str, k: int) -> str | None:
        """Why the model does not hold for this machine, pattern and size; None if it does."""
        if pattern != "ring":
            return f"mapa-dgx1v holds for rings, not for {pattern}"
        if k not in _FITTED_SIZES:
            return f"mapa-dgx1v holds for 2 to 5 GPUs, not for {k}"
        nvlinks = 0
        for i in range(topology.gpus):
            for j in range(i):
                kind, gbps = topology.kinds[i][j], float(topology.bandwidth_gbps[i, j])
                if not is_direct(kind):
                    continue
                if _FITTED_LINKS.get(kind) != gbps:
                    return (
                        f"mapa-dgx1v holds for NV2 at 50, NV1 at 25 GB/s and PCIe,"
                        f" not for {kind} at {gbps:g} GB/s"
                    )
                nvlinks += 1
        return None if nvlinks else "mapa-dgx1v holds for machines with NVLink 2, not PCIe alone"

    def effbw_gbps(self, topology: NodeTopology, k: int, weakest: Ints) -> Floats:
        """GB/s of each set's best ring by eq. 2."""
        rings = members(topology.gpus, k)[:, ring_orders(k)]
        kinds = np.array(topology.kinds)
        ends = rings[:, :, :-1], rings[:, :, 1:]
        doubles = (kinds == "NV2")[ends].sum(axis=2)
        singles = (kinds == "NV1")[ends].sum(axis=2)
        links = k if k > 2 else 1
        lookup = np.full((links + 1, links + 1), -np.inf)
        for x in range(links + 1):
            for y in range(links + 1 - x):
                lookup[x, y] = eq2(x, y, links - x - y)
        best: Floats = lookup[doubles, singles].max(axis=1)
        return best


class Rings(BandwidthModel):
    """Any machine: the weakest link of the set's widest matching, times a measured share.

    A pipelined collective runs at the pace of its narrowest hop. One ring is counted: right where
    links share a port (NVSwitch, a PCIe root), a lower bound where they are cables of their own.
    """

    name = "rings"

    def refusal(self, topology: NodeTopology, pattern: str, k: int) -> str | None:
        """None: the model holds for every machine and pattern."""
        return None

    def effbw_gbps(self, topology: NodeTopology, k: int, weakest: Ints) -> Floats:
        """GB/s for every row of `members(gpus, k)`."""
        return np.asarray(weakest * (RING_EFFICIENCY / MB_PER_GB), dtype=np.float64)


#: In order of preference: the first that holds is used.
MODELS: tuple[BandwidthModel, ...] = (CalibratedBandwidth(), MapaDgx1v(), Cables(), Rings())


def left_of(
    topology: NodeTopology, pattern: str, k: int, weakest: Ints, healthy: tuple[NodeTopology, Ints]
) -> Floats:
    """What is left of each set's bandwidth, [0, 1]: by rings on the links as they are and were.

    Models that were fitted to healthy nodes say nothing about others, so their figures are scaled.
    `weakest` is that of every set, in `healthy` beside the node without its impairments.
    """
    general = next(
        model
        for model in MODELS[-2:]
        if all(model.refusal(one, pattern, k) is None for one in (topology, healthy[0]))
    )
    now = general.effbw_gbps(topology, k, weakest)
    before = general.effbw_gbps(healthy[0], k, healthy[1])
    share: Floats = np.divide(now, before, out=np.ones(len(now)), where=before > 0)
    return np.minimum(1.0, share)


def model_for(topology: NodeTopology, pattern: str, k: int) -> BandwidthModel:
    """The model that predicts for this machine, pattern and size."""
    return next(model for model in MODELS if model.refusal(topology, pattern, k) is None)
