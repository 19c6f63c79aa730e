"""Whether Slurm, the engine and the nodes' own links agree about the network between nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from gres_topology.errors import TopologyError
from gres_topology.slurm_files import networks
from gres_topology.slurm_files.network import BLOCK, Domain, Network
from slurm_plugin.doctor.finding import Finding, ok, warn
from slurm_plugin.doctor.installation import Installation
from slurm_plugin.errors import SlurmError
from slurm_plugin.slurm.releases import parse_version

#: The release from which on Slurm reads topology.yaml first.
_TOPOLOGY_YAML = (25, 5)
#: Slurm's plugin that gives each job an IMEX channel of its own.
_IMEX = "switch/nvidia_imex"
_A_BLOCK_EACH = (
    "a block of topology.conf or topology.yaml for each NVLink domain; `gputopo topology collect`"
    " where the nodes were cabled anew"
)
#: Blocks and domains that do not fit, named one by one; and what of each.
_MOST_ODD, _FEW = 8, 4


def check_network(here: Installation) -> Iterator[Finding]:
    """Slurm and the engine go by the same network; since 25.05 topology.yaml is Slurm's."""
    ours, (what, slurms) = here.config.topology_conf, _slurms_network(here)
    if slurms is None:
        yield ok(f"topology_conf: {ours}" if ours else "gputopo.yaml names no topology_conf")
    elif ours is None:
        is_select = here.config.enforcement == "select"
        yield warn(
            f"{what}, and gputopo.yaml names no topology_conf"
            + ("; Slurm chooses the nodes, we choose the GPUs there" if is_select else ""),
            f"topology_conf: {slurms} in gputopo.yaml",
        )
    elif problem := _differs(ours, slurms):
        yield warn(f"{what}; {problem}", f"topology_conf: {slurms} in gputopo.yaml")
    elif moved := _moved(ours, here):
        yield warn(
            f"slurmctld has another network in force than {ours}: {moved}. The engine goes by"
            " slurmctld's, and by the file while slurmctld does not answer",
            f"bring {ours} up to date, or `scontrol reconfigure` if slurmctld is to read it",
        )
    else:
        yield ok(f"{what}, and so does topology_conf: {ours}")
    yield from _nvlink_domains(here)


def _nvlink_domains(here: Installation) -> Iterator[Finding]:
    """Blocks are what NVLink joins, where it joins nodes (as in an NVL72)."""
    domain_of = {name: one.domain for name, one in here.machines.items() if one.domain}
    if not domain_of:
        return
    count = len(set(domain_of.values()))
    said = f"{len(domain_of)} nodes are in {count} NVLink domain{'s' if count > 1 else ''}"
    if here.slurm_config.get("SwitchType") == _IMEX:
        said += f", whose IMEX channels jobs get of {_IMEX}"
    blocks = _blocks(here)
    odd = [f"{said}, and Slurm knows no blocks"] if count > 1 and not blocks else []
    if blocks:
        odd = [text for block in blocks if (text := _several(block, domain_of))]
        odd += [
            text for one in sorted({*domain_of.values()}) if (text := _cut(one, blocks, domain_of))
        ]
    for text in odd[:_MOST_ODD]:
        yield warn(text, _A_BLOCK_EACH)
    if not odd:
        yield ok(said + (", each within one block" if blocks else ""))


def _blocks(here: Installation) -> list[Domain]:
    """The base blocks that slurmctld has in force; by Slurm's own file where it does not say."""
    found: list[Network] = []
    with suppress(SlurmError):
        found = [one for one in here.slurm.networks().by_name.values() if one.kind]
    file = _slurms_network(here)[1]
    if not found and file is not None:
        with suppress(TopologyError):
            found = list(networks.read(file).by_name.values())
    return [
        domain for one in found if one.kind == BLOCK for domain in one.domains if not domain.level
    ]


def _several(block: Domain, domain_of: Mapping[str, str]) -> str:
    """That a block has nodes of several NVLink domains; "" where it has not."""
    first: dict[str, str] = {}
    for name in sorted(block.nodes):
        if name in domain_of:
            first.setdefault(domain_of[name], name)
    if len(first) < 2:
        return ""
    named = ", ".join(f"{name} of {domain}" for domain, name in list(first.items())[:_FEW])
    return f"block {block.name} has nodes of {len(first)} NVLink domains: {named}"


def _cut(domain: str, blocks: Iterable[Domain], domain_of: Mapping[str, str]) -> str:
    """That an NVLink domain is over several blocks; "" where it is not."""
    names = {one.name for one in blocks if any(domain_of.get(n) == domain for n in one.nodes)}
    over = ", ".join(sorted(names)[:_FEW])
    return f"NVLink domain {domain} is over {len(names)} blocks: {over}" if len(names) > 1 else ""


def _slurms_network(here: Installation) -> tuple[str, Path | None]:
    """What Slurm goes by, in words, and the file; None where it weighs no network that we read."""
    version = here.slurm_config.get("SLURM_VERSION", "")
    several = here.beside_slurm_conf("topology.yaml")
    if parse_version(version) >= _TOPOLOGY_YAML and several.exists():
        return f"Slurm {version} goes by {several} and not by topology.conf", several
    plugin = here.slurm_config.get("TopologyPlugin", "")
    if plugin in ("topology/tree", "topology/block"):
        file = here.beside_slurm_conf("topology.conf")
        return f"TopologyPlugin is {plugin}, Slurm goes by {file}", file
    return "", None


def _differs(ours: Path, slurms: Path) -> str:
    """What is not the same in the two files; "" for nothing."""
    if ours == slurms:
        return ""
    try:
        first, second = networks.read(ours), networks.read(slurms)
    except TopologyError as error:
        return str(error)
    described = [
        ({name: (net.kind, net.domains) for name, net in one.by_name.items()}, one.default.domains)
        for one in (first, second)
    ]
    return "" if described[0] == described[1] else f"{ours} describes another network"


def _moved(ours: Path, here: Installation) -> str:
    """Where slurmctld has nodes elsewhere than the file; "" for nowhere, or where it cannot say."""
    try:
        told, file = here.slurm.networks(), networks.read(ours)
        # Files that are made of the fabric name hosts that are none of Slurm's.
        nodes = {node.name for node in here.nodes}
    except (SlurmError, TopologyError):
        return ""
    for name, network in told.by_name.items():
        written = file.of(name)
        if not network.domains or written is None:
            continue
        lowest = [{d.name: d.nodes for d in n.domains if not d.level} for n in (network, written)]
        for domain in sorted(lowest[0].keys() | lowest[1].keys()):
            has, had = (some.get(domain, frozenset()) for some in lowest)
            if odd := sorted((has ^ had) & nodes):
                where = "in" if odd[0] in has else "not in"
                return f"{odd[0]} is {where} {network.noun} {domain}"
    return ""
