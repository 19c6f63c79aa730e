"""A topology as JSON, and back: what `topology show --json` prints and the engine keeps."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from gres_topology import links
from gres_topology.errors import TopologyError
from gres_topology.topology import Impairment, Nic, NodeTopology, NumaNode

T = TypeVar("T")


def to_dict(topology: NodeTopology) -> dict[str, Any]:
    """Plain JSON values. `gpus` is the count; matrices are lists of rows; bandwidths GB/s."""
    said: dict[str, Any] = {
        "name": topology.name,
        "source": topology.source,
        "model": topology.model,
        "gpus": topology.gpus,
        "kinds": [list(row) for row in topology.kinds],
        "bandwidth_gbps": topology.bandwidth_gbps.tolist(),
        "numa": list(topology.numa),
        "cpus": [None if cpus is None else list(cpus) for cpus in topology.cpus],
        "pci": list(topology.pci),
        "minors": list(topology.minors),
        "nics": [
            {
                "name": nic.name,
                "kinds": list(nic.kinds),
                "pci": nic.pci,
                "numa": nic.numa,
                "rail": nic.rail,
                "sharp": nic.sharp,
            }
            for nic in topology.nics
        ],
        "numa_nodes": [
            {
                "number": node.number,
                "cpus": list(node.cpus),
                "memory_mb": node.memory_mb,
                "distances": {str(other): value for other, value in node.distances},
            }
            for node in topology.numa_nodes
        ],
        "threads_per_core": topology.threads_per_core,
    }
    if topology.impairments:
        # Links are told as they are with these.
        parts = [{"gpus": one.gpus, "share": one.share} for one in topology.impairments]
        said["impairments"] = parts
    return said


def looks_like(text: str) -> bool:
    """Whether the text is one JSON object."""
    return text.lstrip().startswith("{")


def read(text: str, *, name: str, source: str) -> NodeTopology:
    """The inverse of `to_dict`, from JSON text; its own `name` wins over `name`.

    Raises TopologyError naming the line of bad JSON or the key of a bad value.
    """
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise TopologyError(
            f"{source} line {error.lineno}: {error.msg}; expected a topology in JSON"
        ) from None
    except RecursionError:
        raise TopologyError(f"{source}: nested beyond reason; expected a topology") from None
    if not isinstance(data, dict) or not {"gpus", "kinds"} <= data.keys():
        raise TopologyError(f"{source}: no keys gpus and kinds; expected a topology in JSON")
    try:
        return _topology(data, name, source)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        if isinstance(error, TopologyError):
            raise
        raise TopologyError(
            f"{source}: {type(error).__name__}: {error}; expected the JSON of topology show"
        ) from None


def _topology(data: Mapping[str, Any], name: str, source: str) -> NodeTopology:
    n = len(data["kinds"])
    if data["gpus"] != n:
        raise TopologyError(f"{source}: gpus is {data['gpus']!r} but kinds has {n} rows")
    return NodeTopology(
        name=str(data.get("name", name)),
        source=str(data.get("source", source)),
        kinds=tuple(
            tuple(_label(cell, i, j, source) for j, cell in enumerate(row))
            for i, row in enumerate(data["kinds"])
        ),
        bandwidth_gbps=np.array(data["bandwidth_gbps"], dtype=np.float64).reshape(n, n),
        numa=_optional(data.get("numa", [None] * n), int),
        cpus=_optional(data.get("cpus", [None] * n), _numbers),
        pci=_optional(data.get("pci", []), str),
        minors=_optional(data.get("minors", []), int),
        model=data.get("model"),
        nics=tuple(map(_nic, data.get("nics", []))),
        numa_nodes=tuple(
            NumaNode(
                int(node["number"]),
                _numbers(node.get("cpus", [])),
                node.get("memory_mb"),
                tuple((int(k), int(v)) for k, v in node.get("distances", {}).items()),
            )
            for node in data.get("numa_nodes", [])
        ),
        threads_per_core=data.get("threads_per_core"),
        impairments=tuple(
            Impairment(_numbers([*one["gpus"]]), float(one["share"]))
            for one in data.get("impairments", [])
        ),
    )


def _nic(nic: Mapping[str, Any]) -> Nic:
    kinds, rail = tuple(map(str, nic["kinds"])), nic.get("rail")
    rail = None if rail is None else int(rail)
    sharp = bool(nic.get("sharp", False))
    return Nic(str(nic["name"]), kinds, nic.get("pci"), nic.get("numa"), rail, sharp)


def _label(cell: object, i: int, j: int, source: str) -> str:
    label = links.canonical(str(cell))
    if label is None or (label == "X") != (i == j):
        raise TopologyError(
            f"{source}: cell GPU{i}-GPU{j}: '{cell}' is not a link; expected {links.EXPECTED}"
        )
    return label


def _numbers(values: object) -> tuple[int, ...]:
    if not isinstance(values, list):
        raise TypeError(f"{values!r} is not a list of numbers")
    return tuple(int(value) for value in values)


def _optional(values: object, convert: Callable[[Any], T]) -> tuple[T | None, ...]:
    if not isinstance(values, list):
        raise TypeError(f"{values!r} is not a list")
    return tuple(None if value is None else convert(value) for value in values)
