"""Reads what of gputopo.yaml needs more than its text: policies, hints, patterns, node names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

import yaml

from gres_topology import features, hostlist
from gres_topology.errors import did_you_mean
from policies import hints
from policies.contract.demand import Shares, shares
from policies.contract.hint_keys import LAUNCH
from policies.errors import HintError, PatternError
from policies.registry import registry
from slurm_plugin.config.genie import read_classes
from slurm_plugin.config.key import Key, keys_of
from slurm_plugin.config.pattern_file import SitePattern, site_pattern
from slurm_plugin.config.sections import GRES_CONF, IDENTITY, NodeSet, Rule
from slurm_plugin.config.yaml_reader import Kind, YamlReader
from slurm_plugin.errors import Mistakes, PluginError


class SiteReader(YamlReader):
    """A Reader of the whole file."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        #: The site's patterns, once they are read: hints may name them.
        self.patterns: dict[str, str] = {}

    def kinds(self) -> dict[str, Kind]:
        """Those of the base class, and what only the engine understands."""
        return super().kinds() | {
            "policy": self._policy,
            "hints": self._hints,
            "hint keys": self._hint_keys,
            "demand": self._demand,
            "classes": partial(read_classes, self),
            "host list": self._hosts,
            "features": self._features,
            "index": self._index,
            "node sets": self._node_sets,
            "patterns": self._patterns,
            "rules": self._rules,
        }

    def _policy(self, node: yaml.Node, name: str, key: Key) -> str:
        policy, known = self.text(node, name, key), registry.names()
        if policy not in known:
            said = (
                f"{policy!r} is no policy; known: {', '.join(known)}{did_you_mean(policy, known)}"
            )
            raise self.fail(node, name, said)
        return policy

    def _hints(self, node: yaml.Node, name: str, _key: Key) -> Mapping[str, str]:
        values: dict[str, str] = {}
        mistakes = Mistakes()
        for hint, (at, value) in self.mapping(node, name, mistakes).items():
            with mistakes.caught():
                values[hint] = self._hint(hint, at, value, f"{name}.{hint}")
        mistakes.settle()
        return MappingProxyType(values)

    def _hint(self, hint: str, at: yaml.Node, value: yaml.Node, full: str) -> str:
        if hint == "policy":
            raise self.fail(at, full, "write it as the rule's own key `policy`")
        if hint in registry.keys and registry.keys[hint].reader == LAUNCH:
            elsewhere = "read on the nodes; its default stands in their plugstack.conf"
            raise self.fail(at, full, elsewhere)
        if not isinstance(value, yaml.ScalarNode):
            raise self.fail(value, full, "expected one value")
        try:
            given = {hint: value.value}
            hints.to_request(hints.Hints(), (1,), given, patterns=self.patterns)
        except HintError as error:
            raise self.fail(value, full, str(error)) from error
        return str(value.value)

    def _hint_keys(self, node: yaml.Node, name: str, key: Key) -> tuple[str, ...]:
        words = self.words(node, name, key)
        for word in words:
            if word not in registry.keys:
                allowed = ", ".join(registry.keys) + did_you_mean(word, registry.keys)
                raise self.fail(node, name, f"{word!r} is no hint key; allowed: {allowed}")
        return words

    def _demand(self, node: yaml.Node, name: str, key: Key) -> Shares | str:
        """Shares by GPUs per node, or the default's word."""
        allowed = f"expected {key.default} or weights by GPUs per node, such as {{1: 60, 2: 40}}"
        if isinstance(node, yaml.ScalarNode) and node.value == key.default:
            return str(node.value)
        if not isinstance(node, yaml.MappingNode) or not node.value:
            raise self.fail(node, name, allowed)
        written = self.mapping(node, name)
        try:
            return shares({int(size): float(value.value) for size, (_, value) in written.items()})
        except (TypeError, ValueError) as error:  # a PolicyError is one
            raise self.fail(node, name, f"{error}; {allowed}") from error

    def _hosts(self, node: yaml.Node, name: str, key: Key) -> tuple[str, ...]:
        try:
            return tuple(hostlist.expand(self.text(node, name, key)))
        except ValueError as error:
            raise self.fail(node, name, str(error)) from error

    def _features(self, node: yaml.Node, name: str, key: Key) -> str:
        text = self.text(node, name, key)
        try:
            features.holds(text, ())
        except features.Unsupported as error:
            allowed = "expected names of features with &, | and parentheses"
            raise self.fail(node, name, f"{str(error)[:60]!r}; {allowed}") from None
        return text

    def _index(self, node: yaml.Node, name: str, key: Key) -> str | tuple[int, ...]:
        allowed = f"expected {IDENTITY}, {GRES_CONF} or a list such as [2, 0, 1, 3]"
        if isinstance(node, yaml.ScalarNode):
            if node.value not in (IDENTITY, GRES_CONF):
                raise self.fail(node, name, f"{node.value!r} is no mapping; {allowed}")
            return str(node.value)
        words = self.words(node, name, key)
        if sorted(words) != sorted(str(i) for i in range(len(words))) or not words:
            last = len(words) - 1
            raise self.fail(node, name, f"each of 0 to {last} must stand once; {allowed}")
        return tuple(int(word) for word in words)

    def _node_sets(self, node: yaml.Node, name: str, _key: Key) -> tuple[NodeSet, ...]:
        sets: list[NodeSet] = []
        declared: dict[str, int] = {}
        mistakes = Mistakes()
        for i, item in enumerate(self.items(node, name)):
            with mistakes.caught():
                node_set = self.settings(NodeSet, item, f"{name}[{i}]")
                for host in node_set.nodes:
                    if host in declared:
                        problem = f"node {host} was already declared in line {declared[host]}"
                        raise self.fail(item, f"{name}[{i}].nodes", problem)
                    declared[host] = node_set.line
                sets.append(node_set)
        mistakes.settle()
        return tuple(sets)

    def _patterns(self, node: yaml.Node, name: str, key: Key) -> Mapping[str, SitePattern]:
        """The site's patterns by the name users write; hints may name them from then on."""
        patterns = {}
        mistakes = Mistakes()
        for given, (_, value) in self.mapping(node, name, mistakes).items():
            full = f"{name}.{given}"
            with mistakes.caught():
                path = self.file(value, full, key)
                try:
                    patterns[given] = site_pattern(given, path, value.start_mark.line + 1)
                except (PluginError, PatternError) as error:
                    raise self.fail(value, full, str(error)) from error
                self.patterns[given] = patterns[given].internal
        mistakes.settle()
        return MappingProxyType(patterns)

    def _rules(self, node: yaml.Node, name: str, _key: Key) -> Mapping[str, Rule]:
        """Rules by partition; one takes what it does not say from `default`."""
        mistakes = Mistakes()
        mapped = self.mapping(node, name, mistakes)
        written = {given: value for given, (_, value) in mapped.items()}
        default, rules = Rule(), {}
        with mistakes.caught():
            default = self.settings(Rule, written.pop("default", None), f"{name}.default")
        unset = {key.name: getattr(default, key.name) for key in keys_of(Rule)}
        for given, value in written.items():
            with mistakes.caught():
                rules[given] = self.settings(Rule, value, f"{name}.{given}", unset)
        mistakes.settle()
        return MappingProxyType({"default": default} | rules)
