"""The help of every command: whole sentences on a narrow terminal, and a guess at a wrong word."""

import re
import sys
from importlib.metadata import EntryPoint

import click
import pytest
from click.testing import CliRunner
from commands_in_tests import refused
from terminal_in_tests import Terminal

from slurm_plugin.cli import COMMANDS, ELSEWHERE, GROUP, SECTIONS, cli, manual
from slurm_plugin.cli.groups import CommandGroup, summary

#: What is typed -> the command, for each command and each group.
EVERY = {
    context.command_path: context.command
    for context in manual.contexts(click.Context(cli, info_name="gputopo"))
}
GROUPS = [path for path, command in EVERY.items() if isinstance(command, click.Group)]


def shown(*words: str) -> str:
    """What is printed on a terminal of 80 columns, without its colours."""
    done = CliRunner(env={"COLUMNS": "80"}).invoke(cli, words, prog_name="gputopo", color=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("path", EVERY)
def test_help_fits_80_columns(path):
    text = shown(*path.split()[1:], "--help")
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("path", EVERY)
def test_every_text_is_a_sentence(path):
    about = summary(EVERY[path])
    assert re.fullmatch(r"[A-Z].*\.", about)
    for option in EVERY[path].params:
        if isinstance(option, click.Option):
            text = (option.help or "").split("  [")[0]
            assert re.fullmatch(r"[A-Z].*\.", text), option.opts


@pytest.mark.parametrize("path", GROUPS)
def test_a_group_lists_each_command_with_its_whole_sentence(path):
    group = EVERY[path]
    assert isinstance(group, CommandGroup)
    text = " ".join(shown(*path.split()[1:], "--help").split())
    names = group.list_commands(click.Context(group))
    assert names
    for name in names:
        command = EVERY[f"{path} {name}"]
        assert f" {name} {summary(command)} " in f"{text} "


def test_each_command_stands_below_one_heading():
    text = shown("--help")
    assert len(COMMANDS) == sum(map(len, SECTIONS.values()))
    assert [f"{heading}:" in text for heading in SECTIONS] == [True] * len(SECTIONS)
    assert "\nCommands:" not in text


@pytest.mark.parametrize(
    ("typed", "guess"),
    [
        ("exlpain 17", "No such command 'exlpain'. Did you mean explain?"),
        ("topology colect", "No such command 'colect'. Did you mean collect?"),
        ("experiment mapa-dgx1", "Did you mean mapa-dgx1v"),
        ("zebra", "No such command 'zebra'. (see gputopo --help)"),
        ("why --jsn 17", "--json"),
        ("topology collect --acept", "--accept"),
    ],
)
def test_a_mistyped_word_gets_a_guess(typed, guess):
    done = CliRunner().invoke(cli, typed.split(), prog_name="gputopo")
    assert done.exit_code == 2
    assert guess in done.output
    assert len(done.output.splitlines()) == 1


def of_others(monkeypatch, **commands):
    """Other packages bring these commands, by name, and no others."""
    entries = [EntryPoint(name, where, GROUP) for name, where in commands.items()]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: entries)


def test_a_command_of_another_package_stands_below_the_last_heading(monkeypatch):
    of_others(monkeypatch, zebra="slurm_plugin.cli.jobs.place:place", place="nowhere:place")
    *_, last = shown("--help").split("\n\n")
    assert re.search(r"\n  simulate .*\n  zebra ", last, re.S)
    assert shown("zebra", "--help").startswith("Usage: gputopo zebra ")
    assert shown("place", "--help").startswith("Usage: gputopo place ")


@pytest.mark.parametrize("found", [{}, {"experiment": "papers_of_before.command:experiment"}])
@pytest.mark.parametrize("words", ["experiment", "experiment all --help"])
def test_without_its_package_a_command_says_what_it_needs(monkeypatch, found, words):
    """Its package was never installed, or its checkout is gone."""
    of_others(monkeypatch, **found)
    said = refused(*words.split())
    assert said.splitlines() == [f"Error: gputopo experiment {ELSEWHERE['experiment']}"]
    assert "experiment" not in shown("--help")


def test_a_package_that_lacks_another_one_is_not_taken_for_missing(monkeypatch, tmp_path):
    (tmp_path / "brings_zebra.py").write_text("import not_installed_here")
    monkeypatch.syspath_prepend(tmp_path)
    of_others(monkeypatch, zebra="brings_zebra:zebra")
    with pytest.raises(ModuleNotFoundError, match="not_installed_here"):
        cli.get_command(click.Context(cli), "zebra")


def test_commands_of_others_are_looked_for_only_when_needed(monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", None)
    assert shown("place", "--help")


def colours(**environment: str) -> bool:
    """Whether help has colours on a terminal."""
    terminal = Terminal("topology", "show", "--help", **environment)
    assert terminal.end() == 0
    assert "--plot" in terminal.text
    return "\x1b[" in terminal.text


def test_help_is_coloured_on_a_terminal_unless_it_is_not_wanted():
    assert colours()
    assert not colours(NO_COLOR="1")
    assert not colours(TERM="dumb")
    assert "\x1b" not in CliRunner().invoke(cli, ["topology", "show", "--help"]).output


def test_the_page_without_its_libraries_says_how_either_installation_gets_them(monkeypatch):
    monkeypatch.setitem(sys.modules, "slurm_plugin.tell.web.run", None)
    said = " ".join(refused("web", "--demo").split())
    assert "apt-get install python3-aiohttp python3-jinja2" in said
    assert "pip install 'slurm-gputopo[web]'" in said
