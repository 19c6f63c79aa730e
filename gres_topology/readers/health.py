"""What a node's tools say of broken and slow parts, as impairments of its topology.

Read are `nvidia-smi nvlink -s` and `-e`, `nvidia-smi --query-gpu=index,power.limit,
power.default_limit --format=csv`, and the JSON of `dcgmi diag` and `dcgmi health --check`. Forms as
published: inactive links in Azure/azhpc-diagnostics issue 73, error counters in NVIDIA/srt-slurm
pull request 307, diag in NVIDIA/DCGM's tests (releases 3 and 4), health in its dcgmi/Health.cpp and
DcgmiOutput.cpp.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import combinations, product
from typing import Any, NamedTuple

from gres_topology import links
from gres_topology.errors import TopologyError
from gres_topology.topology import Impairment, NodeTopology

#: What is left of a link that makes errors, where nobody measured it.
SUSPECT = 0.5
EXPECTED = (
    "the output of nvidia-smi nvlink -s or -e, of nvidia-smi --query-gpu=index,power.limit,"
    "power.default_limit --format=csv, or of dcgmi diag -j or dcgmi health --check -j"
)
#: Severities of DCGM's dcgm_errors.h that accuse no GPU: none, monitor, configuration.
_HARMLESS = {0, 1, 5}
#: Tests of the ways between GPUs: one that fails makes a GPU slow, not useless.
_OF_LINKS = {"pcie", "nvbandwidth", "nvlink"}
#: So many ways to explain inactive links are looked at.
_MOST_WAYS = 4096

_GPU = re.compile(r"^\s*GPU (\d{1,3}):")
_STATUS = re.compile(r"^\s*Link (\d{1,2}): (<inactive>|[\d.]+ GB/s)\s*$")
_ERRORS = re.compile(r"^\s*Link (\d{1,2}): ([A-Za-z ]+) Errors: (\d{1,20})\s*$")
_POWER = re.compile(r"^\s*(\d{1,3}), *([\d.]+) W, *([\d.]+) W\b")


class Report(NamedTuple):
    """What a report says: which kind it is, and the impairments it finds."""

    kind: str
    found: list[Impairment]
    #: Of a power report: the limit and the default of all GPUs together, watts.
    watts: tuple[float, float] | None = None


def read(text: str, topology: NodeTopology, source: str) -> Report:
    """The report in the text, whichever it is; TopologyError, one line, where it is none."""
    if not text.strip():
        raise TopologyError(
            f"{source}: empty; nvidia-smi nvlink prints nothing for GPUs without NVLinks;"
            f" expected {EXPECTED}"
        )
    if text.lstrip().startswith("{"):
        return _dcgm(text, topology, source)
    lines = text.splitlines()
    if any(_STATUS.match(line) for line in lines):
        return Report("nvlink -s", _status(lines, topology, source))
    if any(_ERRORS.match(line) for line in lines):
        return Report("nvlink -e", _errors(lines, topology, source))
    if any(_POWER.match(line) for line in lines) and "power.limit" in text:
        return _power(lines)
    raise TopologyError(f"{source}: no report on a node's health; expected {EXPECTED}")


def _by_gpu(
    lines: list[str], form: re.Pattern[str], topology: NodeTopology, source: str
) -> Iterator[tuple[int, re.Match[str]]]:
    """The lines of a form, each with the GPU it stands below."""
    gpu = None
    for number, line in enumerate(lines, 1):
        if heading := _GPU.match(line):
            gpu = int(heading[1])
            if gpu >= topology.gpus:
                raise TopologyError(
                    f"{source} line {number}: GPU {gpu}; {topology.name} has {topology.gpus} GPUs"
                )
        elif match := form.match(line):
            if gpu is None:
                raise TopologyError(f"{source} line {number}: a link before any `GPU 0: ...`")
            yield gpu, match


def _status(lines: list[str], topology: NodeTopology, source: str) -> list[Impairment]:
    """Inactive links: cables between two GPUs where that explains them, else the GPU's own."""
    active = [0] * topology.gpus
    dark = [0] * topology.gpus
    for gpu, match in _by_gpu(lines, _STATUS, topology, source):
        (dark if match[2].startswith("<") else active)[gpu] += 1
    wired = [sum(map(links.link_count, row)) for row in topology.kinds]
    # A GPU may have more ports than this board wires: what is dark beyond those is no fault.
    missing = [
        min(down, max(0, wired[gpu] - active[gpu])) if _is_mesh(topology) else down
        for gpu, down in enumerate(dark)
    ]
    cables = _cables(topology, missing) if _is_mesh(topology) else None
    if cables is not None:
        return [
            Impairment(pair, 1 - down / links.link_count(topology.kinds[pair[0]][pair[1]]),
                       f"{down} NVLinks inactive")
            for pair, down in cables.items()
        ]  # fmt: skip
    return [
        Impairment((gpu,), active[gpu] / (active[gpu] + down), f"{down} NVLinks inactive")
        for gpu, down in enumerate(missing)
        if down
    ]


def _is_mesh(topology: NodeTopology) -> bool:
    """Whether direct links are cables between GPUs: no GPU has so many ports otherwise."""
    most = max((sum(map(links.link_count, row)) for row in topology.kinds), default=0)
    return 0 < most <= 18


def _cables(topology: NodeTopology, missing: list[int]) -> dict[tuple[int, int], int] | None:
    """How many links each pair has lost; None unless there is one way to explain it."""
    pairs = [
        (a, b)
        for a, b in combinations([gpu for gpu, down in enumerate(missing) if down], 2)
        if links.is_direct(topology.kinds[a][b])
    ]
    most = [min(links.link_count(topology.kinds[a][b]), missing[a], missing[b]) for a, b in pairs]
    ways = 1
    for count in most:
        ways *= count + 1
    if ways > _MOST_WAYS:
        return None
    explained = []
    for lost in product(*(range(count + 1) for count in most)):
        sums = [0] * topology.gpus
        for (a, b), count in zip(pairs, lost, strict=True):
            sums[a] += count
            sums[b] += count
        if sums == missing:
            explained.append({pair: n for pair, n in zip(pairs, lost, strict=True) if n})
    return explained[0] if len(explained) == 1 else None


def _errors(lines: list[str], topology: NodeTopology, source: str) -> list[Impairment]:
    """GPUs with a link that made any error since its counters were reset, by its share of links."""
    bad: dict[int, set[int]] = {}
    known: dict[int, set[int]] = {}
    said: dict[int, list[str]] = {}
    for gpu, match in _by_gpu(lines, _ERRORS, topology, source):
        known.setdefault(gpu, set()).add(int(match[1]))
        if int(match[3]):
            bad.setdefault(gpu, set()).add(int(match[1]))
            said.setdefault(gpu, []).append(f"link {match[1]}: {match[3]} {match[2]} errors")
    left = {gpu: 1 - (1 - SUSPECT) * len(some) / len(known[gpu]) for gpu, some in bad.items()}
    return [Impairment((gpu,), left[gpu], "; ".join(said[gpu])[:200]) for gpu in bad]


def _power(lines: list[str]) -> Report:
    """All GPUs' limits together: what a job gets on the node."""
    rows = [match for line in lines if (match := _POWER.match(line))]
    limit, default = (sum(float(row[at]) for row in rows) for at in (2, 3))
    if limit >= default:
        return Report("power", [])
    why = f"power limits of {limit:g} of {default:g} W"
    return Report("power", [Impairment((), limit / default, why)], (limit, default))


def _dcgm(text: str, topology: NodeTopology, source: str) -> Report:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise TopologyError(f"{source} line {line}: no JSON; expected {EXPECTED}") from None
    try:
        if "Health Monitor Report" in data.get("header", []):
            kind, accused = "dcgmi health", [*_health(data["body"])]
        else:
            keys = [key for key in ("DCGM Diagnostic", "DCGM GPU Diagnostic") if key in data]
            kind, accused = "dcgmi diag", [*_diag(data[keys[0]])]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise TopologyError(f"{source}: not a report of dcgmi; expected {EXPECTED}") from None
    worst: dict[int, Impairment] = {}
    for gpu, share, why in accused:
        if gpu >= topology.gpus:
            raise TopologyError(f"{source}: GPU {gpu}; {topology.name} has {topology.gpus} GPUs")
        if gpu not in worst or share < worst[gpu].share:
            worst[gpu] = Impairment((gpu,), share, why[:200])
    return Report(kind, list(worst.values()))


def _health(body: Mapping[str, Any]) -> Iterator[tuple[int, float, str]]:
    """GPU, what is left of it, and why: a failure is the end, but for links a share of them."""
    for name, entity in body.get("GPU", {}).get("children", {}).items():
        for system, error in entity["children"]["Errors"]["children"].items():
            is_of_links = system in {"NVLINK system", "PCIe system"}
            if error["value"] == "Failure" or (error["value"] == "Warning" and is_of_links):
                yield int(name), SUSPECT if is_of_links else 0.0, f"{system}: {error['value']}"


def _diag(diagnostic: Mapping[str, Any]) -> Iterator[tuple[int, float, str]]:
    """The same of each test that failed for more than the node's settings."""
    for category in diagnostic["test_categories"]:
        for test in category["tests"]:
            for result in test["results"]:
                warnings = result.get("warnings", [])
                severities = {
                    one.get("error_severity") for one in warnings if isinstance(one, dict)
                }
                if result["status"].lower() != "fail" or (severities and severities <= _HARMLESS):
                    continue
                if result.get("entity_group", "GPU") != "GPU":
                    continue
                ids = str(result["entity_id"] if "entity_id" in result else result["gpu_ids"])
                share = SUSPECT if test["name"].lower() in _OF_LINKS else 0.0
                for gpu in ids.split(","):
                    yield int(gpu), share, f"test {test['name']} failed"
