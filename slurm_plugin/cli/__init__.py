"""The `gputopo` command. Each command lives in its own file and is imported when used."""

from __future__ import annotations

import importlib
import keyword
import sys
from typing import IO, TYPE_CHECKING, Any

import click

from slurm_plugin.cli.groups import CommandGroup

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: For whom -> command -> module; the attribute has the command's name. A module is imported when
#: its command is called, so that shell completion stays fast.
SECTIONS = {
    "For users": {
        "why": "slurm_plugin.cli.jobs.why",
        "try": "slurm_plugin.cli.jobs.try_job",
        "explain": "slurm_plugin.cli.jobs.explain",
        "top": "slurm_plugin.cli.jobs.top",
        "hints": "slurm_plugin.cli.jobs.hints",
        "pattern": "slurm_plugin.cli.jobs.pattern",
        "profile": "slurm_plugin.cli.profiles.profile",
    },
    "For administrators, to set it up": {
        "audit": "slurm_plugin.cli.simulation.audit",
        "init": "slurm_plugin.cli.site.init",
        "config": "slurm_plugin.cli.site.config",
        "enable": "slurm_plugin.cli.site.enable",
        "disable": "slurm_plugin.cli.site.enable",
        "topology": "slurm_plugin.cli.machines.topology",
        "calibrate": "slurm_plugin.cli.machines.calibrate",
        "launch-table": "slurm_plugin.cli.machines.launch_table",
        "remote": "slurm_plugin.cli.site.remote",
    },
    "For administrators, while it runs": {
        "doctor": "slurm_plugin.cli.site.doctor",
        "support-bundle": "slurm_plugin.cli.site.support_bundle",
        "status": "slurm_plugin.cli.site.status",
        "report": "slurm_plugin.cli.site.report",
        "slots": "slurm_plugin.cli.site.slots",
        "defrag": "slurm_plugin.cli.site.defrag",
        "serve": "slurm_plugin.cli.site.serve",
        "serve-donors": "slurm_plugin.cli.site.serve",
        "web": "slurm_plugin.cli.site.web",
    },
    "For policy authors and researchers": {
        "place": "slurm_plugin.cli.jobs.place",
        "simulate": "slurm_plugin.cli.simulation.simulate",
    },
}
COMMANDS = {name: module for section in SECTIONS.values() for name, module in section.items()}
#: The entry points by which other packages add commands, below the last heading.
GROUP = "slurm_gputopo.commands"
#: A command of another package of this project -> what it needs.
ELSEWHERE = {
    "experiment": "needs the package slurm-gputopo-papers: make setup in a checkout of the project,"
    " or pip install ./papers there",
}


#: The base of each folder's errors, and where it is: what becomes one line.
EXPECTED = (
    ("gres_topology.errors", "TopologyError"),
    ("policies.errors", "PolicyError"),
    ("simulation.errors", "SimulationError"),
    ("slurm_plugin.errors", "PluginError"),
)


class Fault(click.ClickException):
    """What a user did or met wrong: one line on stderr, exit status 2."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(printable(" ".join(message.split())))


class Interrupted(click.ClickException):
    """Ctrl-C: one line, and the exit status that shells give to what this signal ended."""

    exit_code = 130

    def __init__(self) -> None:
        super().__init__("")

    def show(self, file: IO[Any] | None = None) -> None:
        """Below the ^C that the terminal shows."""
        click.echo("\ninterrupted", file=file, err=True)


def printable(text: str) -> str:
    """Text that no terminal takes for a command: other characters as Python writes them."""
    return "".join(one if one.isprintable() or one in "\t\n" else repr(one)[1:-1] for one in text)


#: What Click raises then since its release 8.2; before, nothing.
_NO_ARGUMENTS: tuple[type[Exception], ...] = tuple(
    filter(None, [getattr(click.exceptions, "NoArgsIsHelpError", None)])
)


class LazyGroup(CommandGroup):
    """A group whose commands are imported on first use and fail in one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, without importing any."""
        return sorted({*COMMANDS, *_added()})

    def sections(self, ctx: click.Context) -> dict[str, list[str]]:
        """The names of the commands by heading: who needs them."""
        sections = {heading: list(section) for heading, section in SECTIONS.items()}
        [*_, last] = sections.values()
        last += [name for name in self.list_commands(ctx) if name not in COMMANDS]
        return sections

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now; None where there is none."""
        if cmd_name not in COMMANDS:
            return _loaded(_added().get(cmd_name))
        module = importlib.import_module(COMMANDS[cmd_name])
        # `try` is Python's own word: there the function's name has a line behind it.
        name = cmd_name.replace("-", "_") + "_" * keyword.iskeyword(cmd_name)
        command: click.Command = getattr(module, name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As any group does; a command whose package is not here says which one it needs."""
        if args[0] in ELSEWHERE and self.get_command(ctx, args[0]) is None:
            raise Fault(f"{ctx.command_path} {args[0]} {ELSEWHERE[args[0]]}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; expected errors become one line."""
        try:
            return super().invoke(ctx)
        except _NO_ARGUMENTS:
            # Help was asked for by giving nothing; click prints it.
            raise
        except click.UsageError as error:
            where = error.ctx.command_path if error.ctx else ctx.command_path
            raise Fault(f"{where}: {error.format_message()} (see {where} --help)") from error
        except KeyboardInterrupt:
            raise Interrupted from None
        except Exception as error:
            if _is_expected(error):
                raise Fault(str(error)) from error
            raise


def _added() -> dict[str, EntryPoint]:
    """The commands of other packages, none of them imported."""
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _loaded(entry: EntryPoint | None) -> click.Command | None:
    """The command; None also where the folder of an editable installation is gone."""
    if entry is None:
        return None
    try:
        command: click.Command = entry.load()
    except ModuleNotFoundError as error:
        if error.name is None or not f"{entry.module}.".startswith(f"{error.name}."):
            raise
        return None
    return command


def _is_expected(error: Exception) -> bool:
    """Is it one of the project's own errors? Whoever raised it has imported its module."""
    bases = (getattr(sys.modules.get(module), name, ()) for module, name in EXPECTED)
    return any(isinstance(error, base) for base in bases)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="slurm-gputopo")
def cli() -> None:
    """Place jobs on GPUs by the wires between them, inside Slurm."""


def main() -> None:
    """Entry point of the `gputopo` command."""
    cli()
