"""The exceptions of this folder: one base, one per thing that can be wrong."""

from __future__ import annotations


def in_one_line(text: str) -> str:
    """The text without control characters, which no terminal then takes for a command."""
    return "".join(char if char.isprintable() else " " for char in text)


class PluginError(Exception):
    """Base of every error slurm_plugin raises on purpose; its text is for people."""


class ProtocolError(PluginError):
    """A line is not a message of docs/protocol.md; `message_id` is its id where known."""

    def __init__(self, text: str, message_id: int = 0) -> None:
        super().__init__(text)
        self.message_id = message_id


class ConfigError(PluginError):
    """The configuration is wrong; the text starts with file:line and names the key."""


class SlurmError(PluginError):
    """A Slurm command failed or answered something unexpected; the text is one printable line.

    journalctl shows no line with a control character in it, and a command's own text may have one.
    """

    def __init__(self, text: str) -> None:
        super().__init__(in_one_line(text))


class EngineDown(PluginError):
    """The engine does not answer on its socket; the text says what to check."""
