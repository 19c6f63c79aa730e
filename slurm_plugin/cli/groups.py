"""Groups of commands: help that cuts no sentence, and a guess at what a mistyped name meant."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable

import click


def summary(command: click.Command) -> str:
    """The first paragraph of a command's help, whole, on one line."""
    text = command.short_help or command.help or ""
    return " ".join(text.split("\f")[0].strip().split("\n\n")[0].split())


def coloured(text: str, **style: str | bool) -> str:
    """Text for a terminal; Click takes the colours out where the output is none."""
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return text if plain else click.style(text, **style)  # type: ignore[arg-type]


class HelpFormatter(click.HelpFormatter):
    """Click's own with bold headings, and options and commands in colour."""

    def write_heading(self, heading: str) -> None:
        """A heading in bold."""
        super().write_heading(coloured(heading, bold=True))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Options or commands, each beside what it does."""
        super().write_dl(
            [(coloured(name, fg="cyan"), text) for name, text in rows], col_max, col_spacing
        )


class HelpContext(click.Context):
    """Makes help by our formatter."""

    formatter_class = HelpFormatter


class CommandGroup(click.Group):
    """A group whose help lists its commands with a whole sentence each."""

    context_class = HelpContext

    def sections(self, ctx: click.Context) -> dict[str, list[str]]:
        """Heading -> names of the commands below it."""
        return {"Commands": self.list_commands(ctx)}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each section; Click itself would cut a summary to one line."""
        for heading, names in self.sections(ctx).items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            rows = [(name, summary(one)) for name, one in commands if one and not one.hidden]
            with formatter.section(heading):
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that `args` begin with; UsageError with the nearest names for none."""
        name = args[0]
        command = self.get_command(ctx, name)
        if command is not None:
            command.context_class = HelpContext
        elif not name.startswith("-") and not ctx.resilient_parsing:
            near = difflib.get_close_matches(name, self.list_commands(ctx))
            guess = f" Did you mean {' or '.join(near)}?" if near else ""
            ctx.fail(f"No such command {name!r}.{guess}")
        return super().resolve_command(ctx, args)
