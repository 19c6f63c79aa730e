"""Whether a node is still the hardware it was: a digest, and the difference in sentences."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from itertools import combinations

from gres_topology.slurm_files.gres_file import type_of
from gres_topology.topology import NodeTopology


def fingerprint(topology: NodeTopology) -> str:
    """Sixteen hex digits over model, links, PCI addresses and NUMA nodes of the GPUs.

    CPUs, NICs and names are left out: a job's cpuset or a cable does not change which GPUs
    a node has. Equal for equal hardware whatever the file was called.
    """
    parts = [topology.model, topology.kinds, topology.pci, topology.numa]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def difference(a: NodeTopology, b: NodeTopology) -> list[str]:
    """What differs from `a` (expected) to `b` (found), a sentence each; empty if nothing does.

    What only one of the two knows (a catalog machine has no PCI addresses) is no difference.
    """
    if a.gpus != b.gpus:
        return [f"expected {a.gpus} GPUs, found {b.gpus}"]
    differences = []
    if a.model and b.model and _is_other_model(a, b):
        differences.append(f"expected {a.model} GPUs, found {b.model}")
    differences += [
        f"GPU{i} and GPU{j}: expected {a.kinds[i][j]}, found {b.kinds[i][j]}"
        for i, j in combinations(range(a.gpus), 2)
        if a.kinds[i][j] != b.kinds[i][j]
    ]
    differences += _entries("at PCI address", a.pci, b.pci)
    differences += _entries("on NUMA node", a.numa, b.numa)
    differences += _entries("with device minor", a.minors, b.minors)
    return differences


def _is_other_model(a: NodeTopology, b: NodeTopology) -> bool:
    """By name between two real nodes; by kind where one is a catalog machine (V100 of any size)."""
    if None in a.pci or None in b.pci:
        ours, theirs = type_of(a.model), type_of(b.model)
        if ours and theirs:
            return ours != theirs
    return a.model != b.model


def _entries(what: str, a: Sequence[object], b: Sequence[object]) -> list[str]:
    return [
        f"GPU{gpu}: expected {what} {ours}, found {theirs}"
        for gpu, (ours, theirs) in enumerate(zip(a, b, strict=True))
        if ours is not None and theirs is not None and ours != theirs
    ]
