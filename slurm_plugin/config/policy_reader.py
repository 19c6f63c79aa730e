"""Reads what of gputopo.yaml only policies can judge: hints, policies, shares of demand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import yaml

from policies import hints
from policies.contract.demand import Shares, shares
from policies.contract.hint_keys import LAUNCH
from policies.errors import HintError
from policies.registry import registry
from slurm_plugin.config.genie import read_classes
from slurm_plugin.config.option import Option
from slurm_plugin.config.yaml_reader import Kind, Reader


class PolicyReader(Reader):
    """A Reader that knows the policies, too."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        #: The site's patterns, once they are read: hints may name them.
        self.patterns: dict[str, str] = {}

    def kinds(self) -> dict[str, Kind]:
        """As Reader says."""
        return super().kinds() | {
            "policy": self._policy,
            "hints": self._hints,
            "hint keys": self._hint_keys,
            "demand": self._demand,
            "classes": lambda node, key, _: read_classes(self, node, key),
        }

    def _policy(self, node: yaml.Node, key: str, option: Option) -> str:
        name, known = self.text(node, key, option), registry.names()
        if name not in known:
            raise self.fail(node, key, f"{name!r} is no policy; known: {', '.join(known)}")
        return name

    def _hints(self, node: yaml.Node, key: str, _option: Option) -> Mapping[str, str]:
        values: dict[str, str] = {}
        for name, (name_node, value) in self.mapping(node, key).items():
            full = f"{key}.{name}"
            if name == "policy":
                raise self.fail(name_node, full, "write it as the rule's own key `policy`")
            if name in registry.keys and registry.keys[name].reader == LAUNCH:
                told = "read on the nodes; its default stands in their plugstack.conf"
                raise self.fail(name_node, full, told)
            if not isinstance(value, yaml.ScalarNode):
                raise self.fail(value, full, "expected one value")
            values[name] = value.value
            try:
                given = {name: value.value}
                hints.to_request(hints.Hints(), (1,), given, patterns=self.patterns)
            except HintError as error:
                raise self.fail(value, full, str(error)) from error
        return MappingProxyType(values)

    def _hint_keys(self, node: yaml.Node, key: str, option: Option) -> tuple[str, ...]:
        names = self.words(node, key, option)
        for name in names:
            if name not in registry.keys:
                allowed = ", ".join(registry.keys)
                raise self.fail(node, key, f"{name!r} is no hint key; allowed: {allowed}")
        return names

    def _demand(self, node: yaml.Node, key: str, option: Option) -> Shares | str:
        """Shares by GPUs per node, or the default's word."""
        allowed = f"expected {option.default} or weights by GPUs per node, such as {{1: 60, 2: 40}}"
        if isinstance(node, yaml.ScalarNode) and node.value == option.default:
            return str(node.value)
        if not isinstance(node, yaml.MappingNode) or not node.value:
            raise self.fail(node, key, allowed)
        written = self.mapping(node, key)
        try:
            return shares({int(name): float(value.value) for name, (_, value) in written.items()})
        except (TypeError, ValueError) as error:  # a PolicyError is one
            raise self.fail(node, key, f"{error}; {allowed}") from error
