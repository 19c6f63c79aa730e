"""Writes the man pages and shell completions of `gputopo`, for whoever builds packages.

    python -m slurm_plugin.cli.manual DIR

DIR is laid out as /usr/share is: a page for each command below man/man1, that of gputopo.yaml in
man/man5, and one file each for bash, zsh and fish. Pages follow man(7). Their date is
SOURCE_DATE_EPOCH where that is set, so that two builds write the same bytes.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import click
from click.shell_completion import ShellComplete, get_completion_class

from slurm_plugin.cli import cli
from slurm_plugin.cli.groups import summary
from slurm_plugin.config import reference
from slurm_plugin.config.key import Key, keys_of
from slurm_plugin.config.settings import load_policies

PROGRAM = "gputopo"
#: Where each shell looks for the completions of a package, below /usr/share.
COMPLETIONS = {
    "bash": "bash-completion/completions/gputopo",
    "zsh": "zsh/vendor-completions/_gputopo",
    "fish": "fish/vendor_completions.d/gputopo.fish",
}
#: Characters that roff would read as its own, or print as another one.
_ROFF = str.maketrans(
    {
        "\\": r"\(rs",
        "-": r"\-",
        "'": r"\(aq",
        '"': r"\(dq",
        "`": r"\(ga",
        "^": r"\(ha",
        "~": r"\(ti",
    }
)
_STATUS = (
    ("0", "Success."),
    ("1", "What it looked at is not as it should be; commands that say so above alone do this."),
    ("2", "The command could not do its work; one line on standard error says why."),
)
#: Where our packages put the pages that messages name as docs/NAME.md.
_DOCS = "/usr/share/doc/slurm-gputopo/docs"
_CONFIG = "/etc/slurm/gputopo.yaml"
_FILES = (
    (_CONFIG, "The configuration, which `gputopo config check` checks."),
    (
        _DOCS,
        "The pages that are named docs/NAME.md in messages; configuration.md tells of the file.",
    ),
)


def write(folder: Path) -> list[Path]:
    """Write all of it below `folder`, and return the files; OSError where it cannot be written."""
    files = {f"man/man1/{name}.1": page for name, page in pages()}
    files["man/man5/gputopo.yaml.5"] = config_page()
    files |= {path: completion(shell) for shell, path in COMPLETIONS.items()}
    written = []
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def completion(shell: str) -> str:
    """What the shell reads to complete `gputopo`: it calls the command itself."""
    kind = get_completion_class(shell)
    assert kind is not None, shell
    # Without the check of the subclass for bash, which runs the bash of this machine.
    return ShellComplete.source(kind(cli, {}, PROGRAM, "_GPUTOPO_COMPLETE")) + "\n"


def pages() -> Iterator[tuple[str, str]]:
    """Name and text of each command's page, groups and the program itself included."""
    for context in contexts(click.Context(cli, info_name=PROGRAM, **cli.context_settings)):
        yield _page_name(context), _page(context)


def config_page() -> str:
    """The page of gputopo.yaml: what `gputopo config keys` prints, for man."""
    lines = [_head("gputopo.yaml", 5)]
    lines += [".SH NAME", r"gputopo.yaml \- what the engine of gputopo does, and on which nodes"]
    lines += [".SH SYNOPSIS", rf"\fB{_CONFIG}\fP"]
    lines += [".SH DESCRIPTION", "A file in YAML. Unknown keys are refused, by file, line and key."]
    lines += [_text("`systemctl reload gputopo` has a running engine read it again."), ".SH KEYS"]
    for title, section in reference.sections(cls=load_policies()):
        lines.append(f".SS {_text(title.strip('`'))}")
        for key in keys_of(section):
            lines += [".TP", rf"\fB{_text(key.name)}\fP ({_text(_of_key(key))})", _text(key.about)]
    lines += [*_files(), ".SH SEE ALSO", r"\fBgputopo\-config\fP(1)"]
    return "\n".join(lines) + "\n"


def _of_key(key: Key) -> str:
    """Type and default of a key, in words."""
    usual = reference.default(key)
    if usual and not key.is_required:
        usual = f"default {usual}"
    return "; ".join(filter(None, (reference.kind_of(key), usual))).replace("`", "")


def _files() -> list[str]:
    return [".SH FILES", *(text for row in _FILES for text in (".TP", *map(_text, row)))]


def contexts(context: click.Context) -> Iterator[click.Context]:
    """This command and all below it; hidden ones are left out."""
    yield context
    for name, command in _commands(context):
        yield from contexts(click.Context(command, info_name=name, parent=context))


def _commands(context: click.Context) -> Iterator[tuple[str, click.Command]]:
    group = context.command
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None and not command.hidden:
            yield name, command


def _page_name(context: click.Context) -> str:
    return context.command_path.replace(" ", "-")


def _page(context: click.Context) -> str:
    name = _page_name(context)
    lines = [_head(name, 1)]
    about = summary(context.command).rstrip(".")
    usage = " ".join(context.command.collect_usage_pieces(context))
    lines += [".SH NAME", rf"{_text(name)} \- {_text(about)}"]
    lines += [".SH SYNOPSIS", rf"\fB{_text(context.command_path)}\fP {_text(usage)}"]
    lines += [".SH DESCRIPTION", *_paragraphs(context.command.help or about)]
    lines += [".SH OPTIONS", *_options(context)]
    commands = list(_commands(context))
    if commands:
        lines.append(".SH COMMANDS")
    for word, command in commands:
        lines += [".TP", rf"\fB{_text(word)}\fP", _text(summary(command))]
    lines += _environment(context)
    lines.append(".SH EXIT STATUS")
    for number, meaning in _STATUS:
        lines += [".TP", number, meaning]
    above = [] if context.parent is None else [_page_name(context.parent)]
    also = [f"{page}(1)" for page in (*above, *(f"{name}-{word}" for word, _ in commands))]
    if context.parent is None:
        lines += _files()
        also.append("gputopo.yaml(5)")
    shown = (page.partition("(") for page in also)
    lines += [".SH SEE ALSO", ",\n".join(rf"\fB{_text(page)}\fP({rest}" for page, _, rest in shown)]
    return "\n".join(lines) + "\n"


def _head(name: str, section: int) -> str:
    stamp = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    version = metadata.version("slurm-gputopo")
    return (
        f'.TH "{name.upper()}" {section} {time.strftime("%Y-%m-%d", stamp)}'
        f' "slurm-gputopo {version}" "slurm-gputopo"'
    )


def _options(context: click.Context) -> Iterator[str]:
    for option in _shown(context):
        record = option.get_help_record(context)
        if record is not None:
            names, about = record
            yield from (".TP", rf"\fB{_text(names)}\fP", _text(" ".join(about.split())))


def _shown(context: click.Context) -> list[click.Option]:
    params = context.command.get_params(context)
    return [one for one in params if isinstance(one, click.Option) and not one.hidden]


def _environment(context: click.Context) -> list[str]:
    lines = []
    for option in _shown(context):
        if isinstance(option.envvar, str):
            lines += [".TP", rf"\fB{option.envvar}\fP", f"Instead of {_text(option.opts[0])}."]
    return [".SH ENVIRONMENT", *lines] if lines else []


def _paragraphs(text: str) -> Iterator[str]:
    """A help text: paragraphs, of which those behind \\b keep their lines."""
    for number, paragraph in enumerate(text.split("\f")[0].strip().split("\n\n")):
        if number:
            yield ".PP"
        head, *rest = paragraph.splitlines()
        if head.strip() == "\b":
            yield from (".nf", *map(_text, rest), ".fi")
        else:
            yield _text(" ".join(paragraph.split()))


def _text(text: str) -> str:
    """Text as roff prints it: `words` of a command in bold, no line read as a request."""
    plain = re.split(r"`([^`\n]+)`", text)
    parts = [part.translate(_ROFF) for part in plain]
    parts[1::2] = [rf"\fB{part}\fP" for part in parts[1::2]]
    joined = "".join(parts)
    return rf"\&{joined}" if joined.startswith(".") else joined


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def main(folder: Path) -> None:
    """Write the man pages and completions of gputopo below FOLDER, laid out as /usr/share."""
    for path in write(folder):
        click.echo(path)


if __name__ == "__main__":
    main()
