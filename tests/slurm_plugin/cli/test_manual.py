"""The man pages and completions that packages ship: one page for each command, read as written."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from commands_in_tests import run

from slurm_plugin.cli import cli, manual
from slurm_plugin.config import reference
from slurm_plugin.config.settings import load_policies

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Written by the very call of the packages."""
    folder = tmp_path_factory.mktemp("share")
    argv = [sys.executable, "-m", "slurm_plugin.cli.manual", str(folder)]
    env = {"SOURCE_DATE_EPOCH": "86400", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert [Path(line) for line in done.stdout.split()] == manual_files(folder)
    return folder


def manual_files(folder: Path) -> list[Path]:
    pages = [folder / "man" / "man1" / f"{name}.1" for name, _ in manual.pages()]
    pages.append(folder / "man" / "man5" / "gputopo.yaml.5")
    return [*pages, *(folder / path for path in manual.COMPLETIONS.values())]


def command_paths(command: click.Command, path: str) -> list[str]:
    """Every command by what is typed, found without the generator's own walk."""
    found = [path]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            found += command_paths(below, f"{path} {name}")
    return found


COMMANDS = command_paths(cli, "gputopo")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_page_of_its_own(share, command):
    name = command.replace(" ", "-")
    text = (share / "man" / "man1" / f"{name}.1").read_text(encoding="utf-8")
    plain = text.replace(r"\-", "-")
    head, *sections = re.split(r"^\.SH ", plain, flags=re.M)
    titles = {section.splitlines()[0]: section for section in sections}
    assert head.startswith(f'.TH "{name.upper()}" 1 1970-01-02 "slurm-gputopo ')
    assert list(titles)[:4] == ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS"]
    assert re.fullmatch(rf"NAME\n{name} - \S.+\n", titles["NAME"])
    assert titles["SYNOPSIS"].startswith(f"SYNOPSIS\n\\fB{command}\\fP ")
    assert r"\fB-h, --help\fP" in titles["OPTIONS"]
    # No line may be taken for a request unless it is one of those the generator writes.
    requests = {line.split()[0] for line in text.splitlines() if line[:1] in (".", "'")}
    assert requests <= {".TH", ".SH", ".TP", ".PP", ".nf", ".fi"}


def test_every_option_and_command_of_a_group_is_on_its_page(share):
    text = (share / "man" / "man1" / "gputopo-topology-collect.1").read_text(encoding="utf-8")
    for word in ("--config PATH", "--accept", "--wait INTEGER RANGE", "GPUTOPO_CONFIG"):
        assert rf"\fB{word}".replace("-", r"\-") in text
    group = (share / "man" / "man1" / "gputopo-topology.1").read_text(encoding="utf-8")
    assert r"\fBgputopo\-topology\-collect\fP(1)" in group


def test_the_page_of_gputopo_yaml_has_every_key_of_gputopo_config_keys(share):
    """In the same order, with type, default and meaning."""
    text = (share / "man" / "man5" / "gputopo.yaml.5").read_text(encoding="utf-8")
    plain = re.sub(r"\\f[BP]", "", text.replace(r"\-", "-"))
    assert plain.startswith('.TH "GPUTOPO.YAML" 5 1970-01-02 "slurm-gputopo ')
    rows = re.findall(r"^\| `(\S+)` \| .* \|$", run("config", "keys"), re.M)
    assert len(rows) > 100
    listed = plain[plain.index(".SH KEYS") : plain.index(".SH FILES")]
    assert re.findall(r"^\.TP\n(\S+)", listed, re.M) == rows
    titles = [title.strip("`") for title, _ in reference.sections(cls=load_policies())]
    assert re.findall(r"^\.SS (.*)$", listed, re.M) == titles
    assert "\n.TP\nenforcement (select | slots; default select)\nHow decisions reach" in listed
    requests = {line.split()[0] for line in text.splitlines() if line[:1] in (".", "'")}
    assert requests <= {".TH", ".SH", ".SS", ".TP", ".PP", ".nf", ".fi"}


def test_the_first_page_says_where_the_pages_are_that_messages_name(share):
    text = (share / "man" / "man1" / "gputopo.1").read_text(encoding="utf-8").replace(r"\-", "-")
    assert "/usr/share/doc/slurm-gputopo/docs" in text
    assert r"\fBgputopo.yaml\fP(5)" in text


@pytest.mark.parametrize(
    ("text", "roff"),
    [
        ("a `--wait` b", r"a \fB\-\-wait\fP b"),
        (".TH evil", r"\&.TH evil"),
        ("'so /etc/passwd", r"\(aqso /etc/passwd"),
        (r"\fBold", r"\(rsfBold"),
        ("one ` quote", r"one \(ga quote"),
    ],
)
def test_text_is_printed_as_it_stands(text, roff):
    assert manual._text(text) == roff


@pytest.mark.skipif(not shutil.which("man"), reason="man is not installed")
def test_man_warns_of_nothing(share):
    pages = sorted(map(str, (share / "man").glob("man*/*")))
    argv = ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", *pages]
    env = {"LC_ALL": "C.UTF-8", "MANROFFSEQ": "", "MANWIDTH": "80", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


SHELLS = {
    "bash": ["bash", "--norc", "-euc", "source {file}; complete -p gputopo"],
    "zsh": ["zsh", "-fc", "autoload -U compinit; compinit -u -d {file}.dump; source {file}"],
    "fish": ["fish", "-Nc", "source {file}; and complete -c gputopo"],
}


@pytest.mark.parametrize("shell", SHELLS)
def test_completions_are_read_without_an_error(share, shell):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    file = share / manual.COMPLETIONS[shell]
    argv = [word.format(file=file) for word in SHELLS[shell]]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_completions_offer_the_commands(share):
    """What a shell runs when somebody presses Tab."""
    env = {"_GPUTOPO_COMPLETE": "bash_complete", "COMP_WORDS": "gputopo topo", "COMP_CWORD": "1"}
    line = "from slurm_plugin.cli import main; import sys; sys.argv[0] = 'gputopo'; main()"
    argv = [sys.executable, "-c", line]
    env |= {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.split() == ["plain,topology"]
