"""Reads gputopo.yaml by the tables of `schema`, keeping the place for messages."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from slurm_plugin.config import schema
from slurm_plugin.config.option import Option
from slurm_plugin.errors import ConfigError

#: Reads one value: its node, its full key, its option.
Kind = Callable[[yaml.Node, str, Option], Any]


class Reader:
    """Reads YAML nodes by the schema's tables, keeping the place for messages."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fail(self, node: yaml.Node, key: str, text: str) -> ConfigError:
        """The error that names file, line and key."""
        return ConfigError(f"{self.path}:{node.start_mark.line + 1}: {key}: {text}")

    def mapping(self, node: yaml.Node | None, key: str) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """Keys of a mapping, each with its own node and its value's; none for an empty one."""
        if node is None or (isinstance(node, yaml.ScalarNode) and node.value in ("", "null", "~")):
            return {}
        if not isinstance(node, yaml.MappingNode):
            raise self.fail(node, key or "file", "expected keys and values")
        found: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for name, value in node.value:
            if not isinstance(name, yaml.ScalarNode):
                raise self.fail(name, key or "file", "a key must be a word")
            if name.value in found:
                raise self.fail(name, f"{key}.{name.value}".lstrip("."), "given twice")
            found[name.value] = (name, value)
        return found

    def section(
        self, node: yaml.Node | None, key: str, options: tuple[Option, ...]
    ) -> dict[str, Any]:
        """The values of one table's keys, defaults filled in."""
        found = self.mapping(node, key)
        known = [option.key for option in options]
        for name, (name_node, _) in found.items():
            if name not in known:
                full = f"{key}.{name}".lstrip(".")
                raise self.fail(name_node, full, f"unknown key; allowed: {', '.join(known)}")
        values: dict[str, Any] = {}
        for option in options:
            full = f"{key}.{option.key}".lstrip(".")
            if option.key in found:
                values[option.key] = self._value(found[option.key][1], full, option)
            elif option.required and node is not None:
                raise self.fail(node, full, f"missing; {option.doc}")
            else:
                values[option.key] = self._default(option)
        return values

    def _default(self, option: Option) -> Any:
        if option.type == "path" and option.default is not None:
            return Path(str(option.default))
        if option.type == "flag":
            return option.default == "yes"
        if option.type == "ports":
            low, _, high = str(option.default).partition("-")
            return int(low), int(high)
        return option.default

    def _value(self, node: yaml.Node, key: str, option: Option) -> Any:
        if option.type in ("section", "list"):
            return node
        return self.kinds()[option.type](node, key, option)

    def kinds(self) -> dict[str, Kind]:
        """What reads a value of each type."""
        return {
            "text": self.text,
            "path": self.file,
            "integer": self._number,
            "number": self._number,
            "index": self._index,
            "address": self._address,
            "flag": self._flag,
            "ports": self._ports,
            "words": self.words,
        }

    def text(self, node: yaml.Node, key: str, option: Option) -> str:
        """One word or text, of the option's choices where it has some."""
        if not isinstance(node, yaml.ScalarNode) or node.value == "":
            raise self.fail(node, key, f"expected a value; {option.doc}")
        if option.choices and node.value not in option.choices:
            # YAML 1.1 reads a bare `off` as false; the scalar's own text is what we compare.
            allowed = ", ".join(option.choices)
            raise self.fail(node, key, f"{node.value!r} is not one of {allowed}")
        return str(node.value)

    def file(self, node: yaml.Node, key: str, option: Option) -> Path:
        """A path, relative to the configuration's own folder."""
        return self.path.parent / self.text(node, key, option)

    def _number(self, node: yaml.Node, key: str, option: Option) -> float:
        text = self.text(node, key, option)
        limits = f"expected {option.type} from {option.low:g} to {option.high:g}"
        try:
            value = int(text) if option.type == "integer" else float(text)
        except ValueError:
            raise self.fail(node, key, f"{text!r} is not a number; {limits}") from None
        if not math.isfinite(value) or not option.low <= value <= option.high:
            raise self.fail(node, key, f"{text} is out of range; {limits}")
        return value

    def words(self, node: yaml.Node, key: str, _option: Option) -> tuple[str, ...]:
        """A list of words."""
        items = self.items(node, key)
        if not all(isinstance(item, yaml.ScalarNode) for item in items):
            raise self.fail(node, key, "expected a list of words: [a, b]")
        return tuple(str(item.value) for item in items)

    def _index(self, node: yaml.Node, key: str, _option: Option) -> str | tuple[int, ...]:
        allowed = f"expected {schema.IDENTITY}, {schema.GRES_CONF} or a list such as [2, 0, 1, 3]"
        if isinstance(node, yaml.ScalarNode):
            if node.value not in (schema.IDENTITY, schema.GRES_CONF):
                raise self.fail(node, key, f"{node.value!r} is no mapping; {allowed}")
            return str(node.value)
        words = self.words(node, key, _option)
        if sorted(words) != sorted(str(i) for i in range(len(words))) or not words:
            last = len(words) - 1
            raise self.fail(node, key, f"each of 0 to {last} must stand once; {allowed}")
        return tuple(int(word) for word in words)

    def _address(self, node: yaml.Node, key: str, option: Option) -> tuple[str, int]:
        text = self.text(node, key, option)
        host, colon, port = text.rpartition(":")
        if not (host and colon and port.isdecimal() and 0 < int(port) < 65536):
            raise self.fail(node, key, f"{text!r} is not host:port; expected 127.0.0.1:9401, say")
        return host.strip("[]"), int(port)

    def _flag(self, node: yaml.Node, key: str, option: Option) -> bool:
        return self.text(node, key, option) == "yes"

    def _ports(self, node: yaml.Node, key: str, option: Option) -> tuple[int, int]:
        text = self.text(node, key, option)
        low, _, high = text.partition("-")
        if not (low.isdecimal() and high.isdecimal() and 1024 <= int(low) < int(high) < 65536):
            raise self.fail(node, key, f"{text!r} is no range of ports; expected 50000-50999, say")
        return int(low), int(high)

    def items(self, node: yaml.Node, key: str) -> list[yaml.Node]:
        """The items of a list."""
        if not isinstance(node, yaml.SequenceNode):
            raise self.fail(node, key, "expected a list")
        return list(node.value)
