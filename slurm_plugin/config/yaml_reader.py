"""Reads settings classes from YAML, and names file, line and key of every mistake."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from slurm_plugin.base.preset import Preset
from slurm_plugin.config import presets
from slurm_plugin.config.key import Key, keys_of
from slurm_plugin.errors import ConfigError, Mistakes, RemoteError

if TYPE_CHECKING:
    from policies.remote.r_queue.measured import Measured

#: Reads one value: its node, its full name (`remote.preset`), its declaration.
Kind = Callable[[yaml.Node, str, Key], Any]
Settings = TypeVar("Settings")


def _guess(word: str, known: Collection[str]) -> str:
    """What is said of a wrong word."""
    # Where all is well, serve-donors, which is root's, does without that much code.
    from gres_topology.errors import did_you_mean

    return did_you_mean(word, known)


class YamlReader:
    """Reads the YAML of one file; `path` is for messages and relative files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def settings(
        self,
        cls: type[Settings],
        node: yaml.Node | None,
        name: str = "",
        unset: Mapping[str, Any] = MappingProxyType({}),
    ) -> Settings:
        """An instance of a settings class; `node` None is a section nobody wrote.

        `name` is the section's full name, `unset` has defaults in place of the class's. A field
        `line` gets the section's line. Raises ConfigError for all that is wrong in it.
        """
        keys = {one.name: one for one in keys_of(cls)}
        mistakes = Mistakes()
        written = self.mapping(node, name, mistakes)
        for given, (at, _) in written.items():
            if given not in keys:
                said = f"unknown key; allowed: {', '.join(keys)}{_guess(given, keys)}"
                mistakes.found += self.fail(at, _full(name, given), said).problems
        values = dict(unset)
        for one in keys.values():
            full = _full(name, one.name)
            with mistakes.caught():
                if one.name in written:
                    values[one.name] = self._value(written[one.name][1], full, one, values)
                elif one.is_required and node is not None:
                    raise self.fail(node, full, f"missing; {one.about}")
        mistakes.settle()
        if node is not None and "line" in getattr(cls, "__dataclass_fields__", ()):
            values["line"] = node.start_mark.line + 1
        settings = cls(**values)
        conflict = settings.conflict() if hasattr(settings, "conflict") else None
        if conflict and node is not None:
            raise self.fail(node, _full(name, conflict[0]), conflict[1])
        return settings

    def _value(self, node: yaml.Node, full: str, one: Key, above: Mapping[str, Any]) -> Any:
        """One value; `above` is what its own section says so far, which members may inherit."""
        if one.section is None or one.kind not in ("section", "list", "named"):
            return self.kinds()[one.kind](node, full, one)
        section = one.section
        inherited = {key.name for key in keys_of(section) if key.inherits}
        unset = {name: value for name, value in above.items() if name in inherited}
        if one.kind == "section":
            return self.settings(section, node, full)
        mistakes = Mistakes()
        if one.kind == "list":
            read: list[Any] = []
            for i, item in enumerate(self.items(node, full)):
                with mistakes.caught():
                    read.append(self.settings(section, item, f"{full}[{i}]"))
            mistakes.settle()
            return tuple(read)
        named: dict[str, Any] = {}
        for name, (_, value) in self.mapping(node, full, mistakes).items():
            with mistakes.caught():
                named[name] = self.settings(section, value, f"{full}.{name}", unset)
        mistakes.settle()
        return MappingProxyType(named)

    def kinds(self) -> dict[str, Kind]:
        """What reads a value of each kind."""
        return {
            "text": self.text,
            "choice": self.text,
            "path": self.file,
            "integer": self._number,
            "number": self._number,
            "address": self._address,
            "flag": lambda *given: self.text(*given) == "yes",
            "ports": self._ports,
            "words": self.words,
            "preset": self.preset,
            "measured": self.measured,
        }

    def fail(self, node: yaml.Node, name: str, text: str) -> ConfigError:
        """The error that names file, line and key."""
        return ConfigError(f"{self.path}:{node.start_mark.line + 1}: {name}: {text}")

    def mapping(
        self, node: yaml.Node | None, name: str, mistakes: Mistakes | None = None
    ) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """Keys of a mapping, each with its own node and its value's; none for an empty one.

        A key that is none, or given twice, is one of the `mistakes`, else it is raised.
        """
        wrong = Mistakes() if mistakes is None else mistakes
        if node is None or (isinstance(node, yaml.ScalarNode) and node.value in ("", "null", "~")):
            return {}
        if not isinstance(node, yaml.MappingNode):
            raise self.fail(node, name or "file", "expected keys and values")
        members: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for at, value in node.value:
            with wrong.caught():
                if not isinstance(at, yaml.ScalarNode):
                    raise self.fail(at, name or "file", "a key must be a word")
                if at.value in members:
                    raise self.fail(at, _full(name, at.value), "given twice")
                members[at.value] = (at, value)
        if mistakes is None:
            wrong.settle()
        return members

    def items(self, node: yaml.Node, name: str) -> list[yaml.Node]:
        """The items of a list."""
        if not isinstance(node, yaml.SequenceNode):
            raise self.fail(node, name, "expected a list")
        return list(node.value)

    def text(self, node: yaml.Node, name: str, key: Key) -> str:
        """One word or text, of the key's choices where it has some."""
        if not isinstance(node, yaml.ScalarNode) or node.value == "":
            raise self.fail(node, name, f"expected a value; {key.about}")
        if key.choices and node.value not in key.choices:
            # YAML 1.1 reads a bare `off` as false; the scalar's own text is what we compare.
            guess = _guess(node.value, key.choices)
            known = ", ".join(key.choices)
            raise self.fail(node, name, f"{node.value!r} is not one of {known}{guess}")
        return str(node.value)

    def file(self, node: yaml.Node, name: str, key: Key) -> Path:
        """A path, relative to the configuration's own folder."""
        return self.path.parent / self.text(node, name, key)

    def words(self, node: yaml.Node, name: str, _key: Key) -> tuple[str, ...]:
        """A list of words."""
        items = self.items(node, name)
        if not all(isinstance(item, yaml.ScalarNode) for item in items):
            raise self.fail(node, name, "expected a list of words: [a, b]")
        return tuple(str(item.value) for item in items)

    def preset(self, node: yaml.Node, name: str, key: Key) -> Preset:
        """A middleware preset by its name, or from a file of the site's."""
        try:
            return presets.load(self.text(node, name, key), self.path.parent)
        except RemoteError as error:
            raise self.fail(node, name, str(error)) from error

    def measured(self, node: yaml.Node, name: str, key: Key) -> Measured | None:
        """What lent GPUs take, from the file that `gputopo remote measure` wrote, or none."""
        if self.text(node, name, key) == "none":
            return None
        # Imported when asked for: what submits donors reads the section, and needs no policies.
        from slurm_plugin.config import measured

        try:
            return measured.load(self.file(node, name, key))
        except RemoteError as error:
            raise self.fail(node, name, str(error)) from error

    def _number(self, node: yaml.Node, name: str, key: Key) -> float:
        text = self.text(node, name, key)
        limits = f"expected {key.kind} from {key.low:g} to {key.high:g}"
        try:
            value = int(text) if key.kind == "integer" else float(text)
        except ValueError:
            raise self.fail(node, name, f"{text!r} is not a number; {limits}") from None
        if not math.isfinite(value) or not key.low <= value <= key.high:
            raise self.fail(node, name, f"{text} is out of range; {limits}")
        return value

    def _address(self, node: yaml.Node, name: str, key: Key) -> tuple[str, int]:
        text = self.text(node, name, key)
        address = address_in(text)
        if address is None:
            raise self.fail(node, name, f"{text!r} is not host:port; expected 127.0.0.1:9401, say")
        return address

    def _ports(self, node: yaml.Node, name: str, key: Key) -> tuple[int, int]:
        text = self.text(node, name, key)
        low, _, high = text.partition("-")
        if not (low.isdecimal() and high.isdecimal() and 1024 <= int(low) < int(high) < 65536):
            raise self.fail(node, name, f"{text!r} is no range of ports; expected 50000-50999, say")
        return int(low), int(high)


def address_in(text: str) -> tuple[str, int] | None:
    """Host and port of `host:port` or `[::1]:port`; None for anything else."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        return None
    return host.strip("[]"), int(port)


def _full(section: str, name: str) -> str:
    """`section.name`, or either where the other is empty."""
    return f"{section}.{name}".strip(".")
