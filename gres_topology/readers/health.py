"""What a node's tools say of broken and slow parts, as impairments of its topology.

Read are `nvidia-smi nvlink -s` and `-e`, `nvidia-smi --query-gpu=index,power.limit,
power.default_limit --format=csv`, and the JSON of `dcgmi diag` and `dcgmi health --check`. Forms as
published: inactive links in Azure/azhpc-diagnostics issue 73, error counters in NVIDIA/srt-slurm
pull request 307, those of recoveries in marin-community/marin issue 9086, diag in NVIDIA/DCGM's
tests (releases 3 and 4) and its issue 139, health in its dcgmi/Health.cpp and DcgmiOutput.cpp.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import combinations, product
from typing import Any, NamedTuple

from gres_topology import cpulist, links
from gres_topology.errors import TopologyError
from gres_topology.readers import pasted
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

_GPU = re.compile(r"^\s*GPU (\d{1,3}):", re.ASCII)
_STATUS = re.compile(r"^\s*Link (\d{1,2}): (<inactive>|[\d.,]+ GB/s)\s*$", re.ASCII | re.IGNORECASE)
#: Stands below a GPU in place of its links (NVIDIA/gpud issue 1085, eight B200).
_ALL_DARK = re.compile(r"\ball links are in-?active\b", re.IGNORECASE)
#: A counter that is 0 while all is well; those of raw bits and of FEC never are.
_ERRORS = re.compile(
    r"^\s*Link (\d{1,2}): ([A-Za-z ]+ Errors|[A-Za-z ]{0,40}recovery[a-z ]{0,40} events)"
    r": (\d{1,20})\s*$",
    re.ASCII | re.IGNORECASE,
)
_WATTS = re.compile(r"(\d{1,7}(?:\.\d{1,6})?)(?: W)?", re.ASCII)
#: The columns that are needed of a report on power.
_POWER = ("index", "power.limit", "power.default_limit")
#: The limit that counts where another one is lower, as of a chassis.
_ENFORCED = "enforced.power.limit"


class HealthReport(NamedTuple):
    """What a report says: which kind it is, and the impairments it finds."""

    kind: str
    found: list[Impairment]
    #: Of a power report: the limit and the default of all GPUs together, watts.
    watts: tuple[float, float] | None = None
    #: GPUs of the node of which it says too little to call them whole.
    untold: frozenset[int] = frozenset()

    def tells_of(self, gpus: tuple[int, ...]) -> bool:
        """Whether it says all there is to say of these GPUs; of none: of the whole node."""
        return not (self.untold.intersection(gpus) if gpus else self.untold)


def read(text: str, topology: NodeTopology, source: str) -> HealthReport:
    """The report in the text, whichever it is; TopologyError, one line, where it is none."""
    text = pasted.clean(text)
    if not text.strip():
        raise TopologyError(
            f"{source}: empty; nvidia-smi nvlink prints nothing for GPUs without NVLinks;"
            f" expected {EXPECTED}"
        )
    if document := re.search(r"^[ \t]*(?=\{)", text, re.MULTILINE):
        return _dcgm(text, document.end(), topology, source)
    lines = text.splitlines()
    if any(_ERRORS.match(line) for line in lines):
        return _errors(lines, topology, source)
    if any(_STATUS.match(line) or _ALL_DARK.search(line) for line in lines):
        return _status(lines, topology, source)
    if columns := _columns(lines):
        return _power(lines, columns, topology, source)
    if failed := pasted.failure(text):
        line, said = failed
        raise TopologyError(f"{source} line {line}: the tool failed: {said}; expected {EXPECTED}")
    if any(map(_GPU.match, lines)):
        raise TopologyError(f"{source}: GPUs without a word on their links; expected {EXPECTED}")
    raise TopologyError(f"{source}: no report on a node's health; expected {EXPECTED}")


def _by_gpu(
    lines: list[str], form: re.Pattern[str], topology: NodeTopology, source: str
) -> dict[int, list[re.Match[str] | None]]:
    """Each GPU's lines of a form, in the report's order; None: all its links are inactive."""
    found: dict[int, list[re.Match[str] | None]] = {}
    gpu = None
    for number, line in enumerate(lines, 1):
        where = f"{source} line {number}"
        if heading := _GPU.match(line):
            gpu = _known(int(heading[1]), topology, where)
            if gpu in found:
                raise TopologyError(f"{where}: GPU {gpu} again; expected one report of one node")
            found[gpu] = []
        match = form.match(line)
        if match or _ALL_DARK.search(line):
            if gpu is None:
                raise TopologyError(f"{where}: a link before any `GPU 0: ...`")
            found[gpu].append(match)
    return found


def _known(gpu: int, topology: NodeTopology, where: str) -> int:
    """The GPU, if the node has it."""
    if not 0 <= gpu < topology.gpus:
        raise TopologyError(f"{where}: GPU {gpu}; {topology.name} has {topology.gpus} GPUs")
    return gpu


def _untold(found: dict[int, list[re.Match[str] | None]], topology: NodeTopology) -> frozenset[int]:
    """GPUs that are missing, have no links below their heading, or fewer than the others.

    The tool could not ask them, or the report was cut off.
    """
    most = max(map(len, found.values()))
    return frozenset(
        gpu
        for gpu in range(topology.gpus)
        if len(rows := found.get(gpu, [])) < most and None not in rows
    )


def _status(lines: list[str], topology: NodeTopology, source: str) -> HealthReport:
    """Inactive links: cables between two GPUs where that explains them, else the GPU's own."""
    found = _by_gpu(lines, _STATUS, topology, source)
    ports = max(map(len, found.values()))
    wired = [sum(map(links.link_count, row)) for row in topology.kinds]
    active, missing = [0] * topology.gpus, [0] * topology.gpus
    for gpu, rows in found.items():
        dark = sum(row is not None and row[2].startswith("<") for row in rows)
        is_dark = None in rows
        active[gpu] = 0 if is_dark else ports - dark
        # A GPU may have more ports than this board wires: what is dark beyond those is no fault.
        most = wired[gpu] if _is_mesh(topology) else ports if wired[gpu] else 0
        missing[gpu] = most if is_dark else max(0, min(dark, most - (len(rows) - dark)))
    report = HealthReport("nvlink -s", [], untold=_untold(found, topology))
    cables = _cables(topology, missing) if _is_mesh(topology) else None
    if cables is not None:
        return report._replace(
            found=[
                Impairment(
                    pair,
                    1 - down / links.link_count(topology.kinds[pair[0]][pair[1]]),
                    f"{down} NVLinks inactive",
                )
                for pair, down in cables.items()
            ]
        )
    return report._replace(
        found=[
            Impairment(
                (gpu,),
                active[gpu] / (active[gpu] + down),
                f"{down} NVLinks inactive" if active[gpu] else "all NVLinks inactive",
            )
            for gpu, down in enumerate(missing)
            if down
        ]
    )


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


def _errors(lines: list[str], topology: NodeTopology, source: str) -> HealthReport:
    """GPUs with a link that made any error since its counters were reset, by its share of links."""
    found = _by_gpu(lines, _ERRORS, topology, source)
    impairments, untold = [], set(_untold(found, topology))
    for gpu, rows in found.items():
        told = [row for row in rows if row is not None]
        known = len({row[1] for row in told})
        if len(told) < len(rows):
            impairments.append(Impairment((gpu,), 0.0, "all NVLinks inactive"))
            continue
        if known < (ports := _ports(topology, gpu)):
            untold.add(gpu)
        if bad := [row for row in told if int(row[3])]:
            share = len({row[1] for row in bad}) / max(known, ports)
            why = "; ".join(f"link {row[1]}: {row[3]} {row[2].lower()}" for row in bad)
            impairments.append(Impairment((gpu,), 1 - (1 - SUSPECT) * share, why[:200]))
    return HealthReport("nvlink -e", impairments, untold=frozenset(untold))


def _ports(topology: NodeTopology, gpu: int) -> int:
    """The GPU's links: cables to others, or all those to the switches, by which it reaches each."""
    counts = [*map(links.link_count, topology.kinds[gpu])]
    return sum(counts) if _is_mesh(topology) else max(counts)


def _columns(lines: list[str]) -> list[str]:
    """The names of a table of nvidia-smi's that has a limit of power; [] for no such table."""
    for line in lines:
        names = [name.split("[")[0].strip() for name in line.split(",")]
        if "power.limit" in names:
            return names
    return []


def _power(
    lines: list[str], columns: list[str], topology: NodeTopology, source: str
) -> HealthReport:
    """All GPUs' limits together: what a job gets on the node."""
    if lost := [name for name in _POWER if name not in columns]:
        raise TopologyError(f"{source}: no column {lost[0]}; expected {EXPECTED}")
    index, stated, usual = _POWER
    enforced = _ENFORCED if _ENFORCED in columns else stated
    at = [columns.index(name) for name in (index, enforced, usual)]
    rows: dict[int, tuple[float, float]] = {}
    for number, line in enumerate(lines, 1):
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(columns) or (own := cpulist.natural(cells[at[0]])) is None:
            continue
        where = f"{source} line {number}"
        gpu = _known(own, topology, where)
        if gpu in rows:
            raise TopologyError(f"{where}: GPU {gpu} again; expected the report of one node")
        # A GPU whose driver cannot tell has `[N/A]` there.
        watts = [_WATTS.fullmatch(cells[column]) for column in at[1:]]
        if watts[0] and watts[1]:
            rows[gpu] = float(watts[0][1]), float(watts[1][1])
    if not rows:
        raise TopologyError(f"{source}: no GPU's power limits; expected {EXPECTED}")
    limit, default = (sum(row[at] for row in rows.values()) for at in (0, 1))
    if limit >= default:
        return HealthReport("power", [], untold=frozenset(range(topology.gpus)) - rows.keys())
    why = f"power limits of {limit:g} of {default:g} W"
    return HealthReport("power", [Impairment((), limit / default, why)], (limit, default))


def _dcgm(text: str, start: int, topology: NodeTopology, source: str) -> HealthReport:
    """dcgmi's JSON from there on; scripts put lines of their own before and behind it."""
    try:
        data, _ = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise TopologyError(f"{source} line {line}: no JSON; expected {EXPECTED}") from None
    gpus = frozenset(range(topology.gpus))
    try:
        if "Health Monitor Report" in data.get("header", []):
            kind, accused = "dcgmi health", [*_health(data["body"])]
            # Only what is ill is named: where nothing is, a node that is not healthy is unknown.
            body = data["body"]
            is_told = body.get("GPU") or body["Overall Health"]["value"] == "Healthy"
            untold = frozenset() if is_told else gpus
        else:
            keys = [key for key in ("DCGM Diagnostic", "DCGM GPU Diagnostic") if key in data]
            diagnostic = data[keys[0]]
            if error_said := diagnostic.get("runtime_error"):
                said = " ".join(str(error_said).split())[:120]
                raise TopologyError(f"{source}: dcgmi failed: {said}; expected {EXPECTED}")
            kind, accused = "dcgmi diag", [*_diag(diagnostic)]
            untold = gpus - {gpu for gpu, *_ in _results(diagnostic)}
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, TopologyError):
            raise
        header = data.get("header") if isinstance(data, dict) else None
        titles = ", ".join(map(str, header))[:80] if isinstance(header, list) else ""
        what = f"a report on {titles}" if titles else "no report of dcgmi diag or health"
        raise TopologyError(f"{source}: {what}; expected {EXPECTED}") from None
    worst: dict[int, Impairment] = {}
    for gpu, share, why in accused:
        _known(gpu, topology, source)
        if gpu not in worst or share < worst[gpu].share:
            worst[gpu] = Impairment((gpu,), share, why[:200])
    return HealthReport(kind, list(worst.values()), untold=untold)


def _health(body: Mapping[str, Any]) -> Iterator[tuple[int, float, str]]:
    """GPU, what is left of it, and why: a failure is the end, but for links a share of them."""
    for name, entity in body.get("GPU", {}).get("children", {}).items():
        for system, error in entity["children"]["Errors"]["children"].items():
            if "IMEX" in json.dumps(error.get("children", "")):
                # Its daemon's state is told of as NVLink's, on nodes without one, too (NVSentinel
                # issue 1471).
                continue
            is_of_links = system in {"NVLINK system", "PCIe system"}
            if error["value"] == "Failure" or (error["value"] == "Warning" and is_of_links):
                yield int(name), SUSPECT if is_of_links else 0.0, f"{system}: {error['value']}"


def _diag(diagnostic: Mapping[str, Any]) -> Iterator[tuple[int, float, str]]:
    """The same of each test that failed for more than the node's settings."""
    for gpu, name, result in _results(diagnostic):
        warnings = result.get("warnings", [])
        severities = {one.get("error_severity") for one in warnings if isinstance(one, dict)}
        if result["status"].lower() == "fail" and not (severities and severities <= _HARMLESS):
            yield gpu, SUSPECT if name.lower() in _OF_LINKS else 0.0, f"test {name} failed"


def _results(diagnostic: Mapping[str, Any]) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
    """GPU, name and result of each test that ran; one that was skipped says nothing of a GPU."""
    for category in diagnostic["test_categories"]:
        for test in category["tests"]:
            for result in test["results"]:
                is_run = result["status"].lower() in {"pass", "fail", "warn", "warning"}
                if is_run and result.get("entity_group", "GPU") == "GPU":
                    # Release 4, dcgmi of release 3, nvvs of release 3; tests of the node have none.
                    known = [key for key in ("entity_id", "gpu_id", "gpu_ids") if key in result]
                    for gpu in str(result[known[0]]).split(",") if known else ():
                        yield int(gpu), test["name"], result
