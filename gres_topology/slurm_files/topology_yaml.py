"""Slurm's topology.yaml(5) (25.05 and later): several topologies, of which partitions name one.

- topology: racks            # the name that slurm.conf's PartitionName=... Topology= says
  cluster_default: true
  tree: {switches: [{switch: top, children: "s[1-2]"}, {switch: s1, nodes: "n[1-8]"}, ...]}
- topology: nvl72
  block: {block_sizes: [18, 36], blocks: [{block: b1, nodes: "n[1-18]"}, ...]}
- topology: loose
  flat: true

One topology may stand without a list. `ring` and `torus3d` are known by name alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import yaml

from gres_topology.errors import TopologyError
from gres_topology.slurm_files.network import (
    FLAT,
    USUAL_RATIOS,
    Declared,
    Network,
    Networks,
    blocks,
    ratios,
    tree,
)

EXPECTED = "topologies such as - {topology: t1, tree: {switches: [...]}}"
#: Kinds of topology whose nodes we leave to Slurm.
OTHER_KINDS = ("ring", "torus3d")


def parse(text: str, source: str) -> Networks:
    """The topologies described; TopologyError names file, line and what is wrong."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{source}:{mark.line + 1}" if mark else source
        problem = getattr(error, "problem", None) or "not YAML"
        raise TopologyError(f"{where}: {problem}; expected {EXPECTED}") from None
    except (ValueError, RecursionError):
        raise TopologyError(f"{source}: not YAML; expected {EXPECTED}") from None
    if root is None:
        raise TopologyError(f"{source}: says nothing; expected {EXPECTED}")
    return _Reader(source).networks(root)


class _Reader:
    """Turns nodes of YAML, which know their lines, into networks."""

    def __init__(self, source: str) -> None:
        self._source = source

    def _where(self, node: yaml.Node) -> str:
        return f"{self._source}:{node.start_mark.line + 1}"

    def _fail(self, node: yaml.Node, text: str) -> TopologyError:
        return TopologyError(f"{self._where(node)}: {text}")

    def networks(self, root: yaml.Node) -> Networks:
        entries = root.value if isinstance(root, yaml.SequenceNode) else [root]
        by_name: dict[str, Network] = {}
        default = None
        for entry in entries:
            keys = self._mapping(entry, ("topology", "cluster_default", *self._kinds()))
            name = self._text(keys["topology"], "topology") if "topology" in keys else ""
            if not name:
                raise self._fail(entry, f"a topology without a name; expected {EXPECTED}")
            if name in by_name:
                raise self._fail(entry, f"topology {name} is described twice")
            by_name[name] = self._network(entry, keys, name)
            if default is None and self._is_true(keys.get("cluster_default"), "cluster_default"):
                default = by_name[name]
        if not by_name:
            raise self._fail(root, f"says nothing; expected {EXPECTED}")
        return Networks(by_name, default or next(iter(by_name.values())))

    def _kinds(self) -> dict[str, Callable[[yaml.Node, str], Network]]:
        others = dict.fromkeys(OTHER_KINDS, self._other)
        return {"tree": self._tree, "block": self._block, FLAT: self._other, **others}

    def _network(self, entry: yaml.Node, keys: Mapping[str, yaml.Node], name: str) -> Network:
        kinds = self._kinds()
        found = [kind for kind in kinds if kind in keys]
        if len(found) != 1:
            said = " and ".join(found) or "none"
            raise self._fail(
                entry, f"topology {name} is {said}; expected exactly one of {', '.join(kinds)}"
            )
        return kinds[found[0]](keys[found[0]], found[0])

    def _other(self, node: yaml.Node, kind: str) -> Network:
        is_off = isinstance(node, yaml.ScalarNode) and not self._is_true(node, kind)
        if is_off or isinstance(node, yaml.SequenceNode):
            raise self._fail(node, f"{kind}: expected true or its keys")
        return Network((), self._source, kind)

    def _tree(self, node: yaml.Node, _kind: str) -> Network:
        keys = self._mapping(node, ("switches",))
        switches = self._declared(node, keys, "switches", "switch", ("children", "nodes"))
        # Switches, too, may come before their nodes, which are dynamic.
        return tree(switches, self._source, may_be_empty=True)

    def _block(self, node: yaml.Node, _kind: str) -> Network:
        keys = self._mapping(node, ("block_sizes", "blocks"))
        declared = self._declared(node, keys, "blocks", "block", ("nodes",))
        sizes = keys.get("block_sizes")
        many = USUAL_RATIOS if sizes is None else self._ratios(sizes)
        return blocks(declared, many, self._source)

    def _ratios(self, node: yaml.Node) -> tuple[int, ...]:
        parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
        try:
            sizes = [int(self._text(part, "block_sizes")) for part in parts]
        except ValueError:
            sizes = []
        found = ratios(sizes) if sizes or parts else USUAL_RATIOS
        if found is None:
            raise self._fail(
                node,
                "block_sizes: expected the size of a base block, then larger ones, each the"
                " first times a power of two, such as [18, 36, 72]",
            )
        return found

    def _declared(
        self,
        node: yaml.Node,
        keys: Mapping[str, yaml.Node],
        many: str,
        one: str,
        others: tuple[str, ...],
    ) -> list[Declared]:
        """The switches or blocks of a list; none where they come with dynamic nodes."""
        listed = keys.get(many)
        if not isinstance(listed, yaml.SequenceNode):
            raise self._fail(listed or node, f"expected {many}: a list of - {one}: NAME")
        found = []
        for item in listed.value:
            given = self._mapping(item, (one, *others))
            texts = {key: self._text(value, key) for key, value in given.items()}
            if not texts.get(one):
                raise self._fail(item, f"expected {one}: NAME")
            below = texts.get("children", "")
            found.append(Declared(self._where(item), texts[one], texts.get("nodes", ""), below))
        return found

    def _mapping(self, node: yaml.Node, allowed: tuple[str, ...]) -> dict[str, yaml.Node]:
        listed = ", ".join(allowed)
        if not isinstance(node, yaml.MappingNode):
            raise self._fail(node, f"expected keys {listed}")
        found: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else "?"
            if name not in allowed:
                raise self._fail(key, f"unknown key {name}; expected {listed}")
            if name in found:
                raise self._fail(key, f"{name} is given twice")
            found[name] = value
        return found

    def _text(self, node: yaml.Node, key: str) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self._fail(node, f"{key}: expected one word, a host list in quotes if need be")
        return str(node.value).strip()

    def _is_true(self, node: yaml.Node | None, key: str) -> bool:
        if node is None:
            return False
        word = self._text(node, key).lower()
        if word not in ("true", "yes", "on", "1", "false", "no", "off", "0"):
            raise self._fail(node, f"{key}: {word!r}; expected true or false")
        return word in ("true", "yes", "on", "1")
