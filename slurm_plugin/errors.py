"""The exceptions of this folder: one base, one per thing that can be wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager


def in_one_line(text: str) -> str:
    """The text without control characters, which no terminal then takes for a command."""
    return "".join(char if char.isprintable() else " " for char in text)


#: What yaml.safe_load raises beside its own YAMLError: for a date that is none, for a tag that does
#: not fit its value, for nesting without end.
NO_YAML_VALUE = (ValueError, LookupError, AttributeError, RecursionError)


class PluginError(Exception):
    """Base of every error slurm_plugin raises on purpose; its text is for people."""


class ProtocolError(PluginError):
    """A line is not a message of docs/protocol.md; `message_id` is its id where known."""

    def __init__(self, text: str, message_id: int = 0) -> None:
        super().__init__(text)
        self.message_id = message_id


class ConfigError(PluginError):
    """The configuration is wrong; the text starts with file:line and names the key.

    Of several mistakes the text has the first one, and `problems` all.
    """

    def __init__(self, text: str, *others: str) -> None:
        more = f" (and {len(others)} more: gputopo config check lists them)" if others else ""
        super().__init__(text + more)
        self.problems = (text, *others)


class Mistakes:
    """Gathers the mistakes of a file, so that people see all of them at once."""

    def __init__(self) -> None:
        self.found: list[str] = []

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Takes the ConfigError of what is read within it, and goes on behind it."""
        try:
            yield
        except ConfigError as error:
            self.found += error.problems

    def settle(self) -> None:
        """Raises ConfigError with all that was found, in the order of the lines, if anything."""
        if self.found:
            raise ConfigError(*sorted(self.found, key=_line))


def _line(problem: str) -> int:
    match = re.search(r":(\d{1,9}): ", problem)
    return int(match[1]) if match else 0


class SlurmError(PluginError):
    """A Slurm command failed or answered something unexpected; the text is one printable line.

    journalctl shows no line with a control character in it, and a command's own text may have one.
    """

    def __init__(self, text: str) -> None:
        super().__init__(in_one_line(text))


class EngineDown(PluginError):
    """The engine does not answer on its socket; the text says what to check."""


class RemoteError(PluginError):
    """A preset is wrong, or a donor cannot serve; one line for people."""


class Refused(RemoteError):
    """The other side is not who it should be, or says that we are not."""


class HungUp(Refused):
    """The other side turned us away before it knew who we are; another try may succeed."""
