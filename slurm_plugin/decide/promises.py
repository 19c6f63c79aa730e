"""What Slurm promises about a job's nodes under topology/tree and topology/block is kept.

Slurm's own choice shows what it found: in how many blocks or below how many switches, of each
level, the job is. Ours is in no more of any level, with segments whole, on nodes no heavier; so
whatever Slurm holds a choice of nodes to (a job within the blocks of its size, --switches,
--segment) holds for ours where it holds for its own. Slurm checks that again when it selects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace

from gres_topology import Network
from gres_topology.slurm_files.network import BLOCK, FLAT, TREE
from policies import Cluster, LooksAt, Placement, Policy, Request, Wait
from policies.contract.blocks import Blocks, Share
from policies.contract.nodes import Candidates
from policies.slices import PROFILE
from slurm_plugin.base.placement import PlacementQuestion

#: Blocks or switches that a sentence names.
MAX_NAMED = 8
#: Slurm reads several topologies from this file.
YAML = "yaml"


def seen(
    asked: PlacementQuestion, network: Network | None
) -> tuple[PlacementQuestion, Network | None]:
    """Slurm's nodes alone where it weighs a network that we do not know; None for no domains."""
    if keeps_slurms_nodes(asked, network):
        listed = tuple(node for node in asked.candidates if node.own)
        return replace(asked, candidates=listed, others=None), None
    return asked, network if network and network.domains else None


def keeps_slurms_nodes(asked: PlacementQuestion, network: Network | None) -> bool:
    """Whether Slurm weighs a network that we do not know: its nodes are taken as they are."""
    if not asked.topology:
        return False
    if network is None or network.kind not in (TREE, BLOCK, FLAT):
        return True
    return asked.topology not in (YAML, network.kind)


def sentence(
    asked: PlacementQuestion, network: Network | None, taken: Collection[str] | None
) -> str:
    """Who chose the job's nodes under a network that Slurm weighs itself; "" without one.

    `taken`: the nodes of our choice, None where the choice is Slurm's own.
    """
    if not asked.topology:
        return ""
    if asked.topology == YAML:
        weighed = f"topology {asked.network}" if asked.network else "topology.yaml's default"
    else:
        weighed = f"topology/{asked.topology}"
    if keeps_slurms_nodes(asked, network) or network is None:
        return f"Slurm's: gputopo.yaml names no such network as its {weighed}"
    if network.kind == FLAT:
        return ""
    own = {node.name for node in asked.candidates if node.own}
    is_ours = taken is not None and set(taken) != own
    among = _among(taken if taken is not None else own, network, asked.segment)
    whose = "ours, in no more of any level than Slurm's own" if is_ours else "Slurm's own"
    return f"{whose} ({weighed}): {among}"


def _among(nodes: Collection[str], network: Network, segment: int) -> str:
    """In which lowest domains these nodes are, and whether each has whole segments of them."""
    one, several = network.noun, "blocks" if network.kind == BLOCK else "switches"
    counts: Counter[str] = Counter()
    for domain in network.domains:
        if domain.level == 0 and (count := len(domain.nodes.intersection(nodes))):
            counts[domain.name] = count
    names = list(counts)
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    said = f"{one if len(names) == 1 else several} {', '.join(names[:MAX_NAMED])}{more}"
    if outside := len(nodes) - counts.total():
        lone = f"{outside} in no {one}"
        said = f"{said}, {lone}" if names else lone
    if segment:
        is_whole = not outside and all(count % segment == 0 for count in counts.values())
        said += f"; segments of {segment} {'whole' if is_whole else 'not whole'}"
    return said


def place(
    policy: Policy, request: Request, cluster: Cluster, own: int, segment: int
) -> Placement | Wait:
    """As `policy.place`, on nodes that keep what Slurm's own choice (`own`, places) keeps."""
    nodes, network = cluster.nodes, cluster.network
    if not isinstance(nodes, Candidates) or network is None:
        raise TypeError("promises are kept among the nodes of a table, on a known network")
    blocks = nodes.table.blocks(network)
    most = blocks.counts(own)
    if most is None:
        return policy.place(request, replace(cluster, nodes=replace(nodes, among=own)))
    return _Promised(policy, request, cluster, nodes, blocks, own, most, max(1, segment)).place()


@dataclass(frozen=True, slots=True)
class _Promised:
    policy: Policy
    request: Request
    cluster: Cluster
    nodes: Candidates
    blocks: Blocks
    own: int
    #: In how many domains of each level Slurm's own nodes are.
    most: tuple[int, ...]
    segment: int

    def place(self) -> Placement | Wait:
        joined = self.nodes.among & self.blocks.joined
        if len(self.request.gpus_per_node) == 1:
            return self._on(self._begun(joined))
        outcome = self._on(joined)
        if self._is_kept(outcome):
            return outcome
        near = self._near()
        if near:
            outcome = self._on(near)
            if self._is_kept(outcome):
                return outcome
        return self._on(self.own)

    def _on(self, places: int, counts: tuple[int, ...] | None = None) -> Placement | Wait:
        """The policy's answer for nodes of these places alone."""
        among = replace(self.nodes, among=places)
        request = self.request
        if counts is not None:
            request = replace(request, gpus_per_node=counts, min_utility=0.0)
        return self.policy.place(request, replace(self.cluster, nodes=among))

    def _begun(self, joined: int) -> int:
        """For a job of one node under topology/block: the block with the fewest whole nodes.

        Another job has to fit into one block, so that whole ones count for more there than full
        nodes; but only where the job cannot tell the nodes apart.
        """
        if not self._is_block or not self._will_any_node_do():
            return joined
        room = joined & self._with_room(self.request.gpus_per_node[0])
        return self.blocks.begun(room, self.nodes.table.whole) if room else joined

    @property
    def _is_block(self) -> bool:
        network = self.cluster.network
        return network is not None and network.kind == BLOCK

    def _will_any_node_do(self) -> bool:
        """All GPUs are joined alike, and neither hint nor neighbours say where to go."""
        options, shapes = self.request.options, {t.shape: t for t in self.nodes.topologies()}
        return (
            len(shapes) == 1
            and next(iter(shapes.values())).is_even
            and LooksAt.RUNNING_JOBS not in self.policy.looks_at
            and PROFILE not in options
            and options.get("spread") != "yes"
        )

    def _places(self, placement: Placement) -> int:
        at = self.nodes.table.place
        return sum(1 << at[name] for name in placement.gpus)

    def _is_kept(self, outcome: Placement | Wait) -> bool:
        placement = outcome.instead if isinstance(outcome, Wait) else outcome
        if placement is None or len(placement.gpus) == 1:
            return True
        places = self._places(placement)
        counts = self.blocks.counts(places)
        return (
            counts is not None
            and all(ours <= slurms for ours, slurms in zip(counts, self.most, strict=True))
            and self._are_whole(self.blocks.shares(places))
            and self._weight(places) <= self._weight(self.own)
        )

    def _are_whole(self, shares: list[Share]) -> bool:
        return all(count % self.segment == 0 for _, count in shares)

    def _weight(self, places: int) -> int:
        kinds = zip(self.nodes.table.kinds, self.nodes.table.of_kind, strict=True)
        return sum(kind.weight * (places & of_kind).bit_count() for kind, of_kind in kinds)

    def _near(self) -> int:
        """The nodes of the smallest hole that suffices; 0 where there is none.

        Of one block all of its nodes with room, of several just as many as the job takes.
        """
        counts = self.request.gpus_per_node
        shares = self.blocks.fewest(
            self._with_room(counts[0]), len(counts), self._unit(), self.most
        )
        if shares is None or len(shares) == 1:
            return shares[0][0] if shares else 0
        found, left = 0, counts
        for places, count in shares:
            outcome = self._on(places, left[:count])
            placement = outcome.instead if isinstance(outcome, Wait) else outcome
            if placement is None:
                return 0
            found |= self._places(placement)
            left = left[count:]
        return found

    def _unit(self) -> int:
        """Segments are of whole blocks where Slurm's own are; else nobody's place is changed."""
        return (
            self.segment
            if self._are_whole(self.blocks.shares(self.own))
            else len(self.request.gpus_per_node)
        )

    def _with_room(self, gpus: int) -> int:
        """The nodes with so many GPUs free that are as light as the lightest of Slurm's own."""
        table = self.nodes.table
        kinds = zip(table.kinds, table.of_kind, strict=True)
        lightest = min(kind.weight for kind, of_kind in kinds if of_kind & self.own)
        places = 0
        for state in table.index.states():
            if state.free.bit_count() >= gpus and table.kinds[state.kind].weight <= lightest:
                places |= table.index.places(state)
        return places & self.nodes.among
