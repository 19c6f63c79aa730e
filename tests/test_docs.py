"""What the pages name exists: links, headings, commands, make targets, files, Python names."""

import importlib.util
import pkgutil
import re
import shlex
from pathlib import Path

import click
import pytest

from slurm_plugin.cli import cli, manual
from slurm_plugin.slurm.sbatch_options import OPTIONS as SBATCH_OPTIONS

ROOT = Path(__file__).resolve().parents[1]
#: Every page that a reader of the repository may open; the change log speaks of what once was.
PAGES = sorted(
    [*ROOT.glob("[B-Z]*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "slurm_cluster" / "README.md"]
)
PAGES.remove(ROOT / "CHANGELOG.md")
#: Made by a tool when it ran: the files it names are those of that day.
PAGES.remove(ROOT / "docs" / "mutants.md")
FOLDERS = ("docs", "gres_topology", "lua_bridge", "papers", "policies", "simulation")
FOLDERS += ("slurm_cluster", "slurm_plugin", "tests")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def anchor(heading: str) -> str:
    """The fragment that GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {anchor(heading) for heading in headings}


@every_page
def test_every_link_leads_to_a_file_and_a_heading(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if link.startswith(("http://", "https://")):
            continue
        name, _, fragment = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not fragment or fragment in anchors(target), link


@pytest.mark.parametrize("page", [*ROOT.glob("docs/**/*.md")], ids=lambda page: page.stem)
def test_no_page_of_the_site_links_to_one_that_the_site_does_not_have(page):
    conf = (ROOT / "docs" / "conf.py").read_text(encoding="utf-8")
    beside = re.findall(r'"([\w/]+\.md)"', conf.partition("include_patterns")[2].partition("]")[0])
    assert len(beside) == 4
    for link in re.findall(r"\]\(([^)\s#:]+\.md)", page.read_text(encoding="utf-8")):
        target = (page.parent / link).resolve().relative_to(ROOT)
        assert target.is_relative_to("docs") or str(target) in beside, link


def code(text: str) -> list[str]:
    """The lines of code blocks and the spans in backquotes, with continued lines joined."""
    blocks = re.findall(r"^ *```[a-z]*\n(.*?)^ *```", text, re.M | re.S)
    indented = re.findall(r"^    .*$", text, re.M)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S))
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [*lines, *indented, *spans]


def commands(text: str) -> list[list[str]]:
    """The words behind each `gputopo`, to the end of that command."""
    found = []
    for line in code(text):
        for call in re.findall(r"(?:^ *|[$#&|] |/)gputopo ([a-z][^#|>&;)]*)", line):
            try:
                found.append(shlex.split(call))
            except ValueError:
                found.append(call.split())
    return found


def unknown(words: list[str]) -> str | None:
    """The first word that ought to be a command or an option, and is none."""
    command: click.Command = cli
    options: set[str] = set()
    for word in words:
        if word == "--" or word.isupper():
            return None
        if isinstance(command, click.Group) and not word.startswith("-"):
            called = command.get_command(click.Context(command), word)
            if called is None:
                return word
            command = called
            options = {name for parameter in command.params for name in parameter.opts}
            if command.context_settings.get("ignore_unknown_options"):
                # `gputopo try` takes sbatch's.
                options |= {f"--{name.rstrip('=')}" for name in SBATCH_OPTIONS}
        elif word.startswith("--") and word.split("=")[0] not in {*options, "--help"}:
            return word
    return None


@every_page
def test_prose_is_written_in_lines_of_120_characters(page):
    """Tables, code, pictures and pages that a command writes are as wide as they are."""
    text = page.read_text(encoding="utf-8")
    if page.stem in ("harm", "matrix", "reproduction"):
        return
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S).splitlines()
    is_wide = re.compile(r" *\||#|    |!|\s*`[^`]+`[,.]?$")
    assert [line for line in prose if len(line) > 120 and not is_wide.match(line)] == []


@every_page
def test_a_page_begins_with_a_title_and_a_sentence(page):
    title, first, *_ = filter(None, page.read_text(encoding="utf-8").splitlines())
    assert title.startswith("# ")
    assert re.match(r"[`\[]?\w", first), first


def navigation() -> list[Path]:
    """The pages that the site's tables of contents name, the first page among them."""
    first = ROOT / "docs" / "index.md"
    lines = [
        line
        for block in re.findall(r"^```{toctree}\n(.*?)^```", first.read_text("utf-8"), re.M | re.S)
        for line in block.splitlines()
        if line and not line.startswith(":")
    ]
    assert lines[0].endswith("<self>")
    return [first, *(ROOT / "docs" / f"{line}.md" for line in lines[1:])]


def test_the_navigation_is_short_and_leads_to_every_page():
    pages = navigation()
    assert len(pages) == len(set(pages)) <= 30
    links = {
        (page.parent / link).resolve()
        for page in pages
        for link in re.findall(r"\]\(([^)\s#:]+\.md)", page.read_text(encoding="utf-8"))
    }
    assert [path for path in PAGES if path not in {*pages, *links}] == [ROOT / "README.md"]


def test_the_readme_names_every_page_of_the_navigation():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = [path.relative_to(ROOT) for path in navigation()]
    assert [str(path) for path in pages if f"]({path})" not in text] == []


def test_the_pictures_of_the_first_page_are_those_that_are_drawn(tmp_path, monkeypatch):
    folder = ROOT / "docs" / "pictures"
    spec = importlib.util.spec_from_file_location("draw", folder / "draw.py")
    draw = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(draw)
    monkeypatch.setattr(draw, "HERE", tmp_path)
    draw.main()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == sorted(path.name for path in folder.glob("*.svg"))
    faster, slower = (draw.judge(draw.catalog.load("dgx1v"), gpus) for gpus in ((0, 3), (0, 1)))
    assert f"{faster.effbw_gbps:.1f} GB/s" in (tmp_path / "two-gpus.svg").read_text()
    assert faster.effbw_gbps > 1.5 * slower.effbw_gbps  # what the page says of it


@every_page
def test_every_command_and_option_exists(page):
    for words in commands(page.read_text(encoding="utf-8")):
        assert not unknown(words), " ".join(["gputopo", *words])


def test_every_example_in_a_help_text_exists():
    contexts = manual.contexts(click.Context(cli, info_name="gputopo"))
    texts = [context.command.help or "" for context in contexts]
    examples = [line for text in texts for line in re.findall(r"^ *gputopo (.*)$", text, re.M)]
    assert len(examples) > 1
    for line in examples:
        assert not unknown(shlex.split(line)), line


@every_page
def test_every_make_target_exists(page):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][\w-]*):", makefile, re.M))
    for line in code(page.read_text(encoding="utf-8")):
        for target in re.findall(r"^\s*make ([a-z][\w-]*)", line):
            assert target in targets, line


@every_page
def test_every_file_of_ours_that_is_named_exists(page):
    for span in code(page.read_text(encoding="utf-8")):
        for path in re.findall(rf"(?<![\w./-])(?:{'|'.join(FOLDERS)})/[\w./*-]+\w", span):
            name = path.split("::")[0]
            assert "NAME" in name or list(ROOT.glob(name)), path


@every_page
def test_every_python_name_of_ours_exists(page):
    text = page.read_text(encoding="utf-8")
    names = re.findall(r"python3? -m ((?:bench|papers|simulation|slurm_cluster)[\w.]*)", text)
    for module, imported in re.findall(r"^from (\w[\w.]*) import ([\w, ]+)$", text, re.M):
        if module.split(".")[0] in FOLDERS:
            names += [f"{module}.{name}" for name in re.split(", *", imported)]
    names += re.findall(
        r"`((?:gres_topology|papers|policies|simulation|slurm_plugin)(?:\.\w+)+)[`(]", text
    )
    for name in names:
        pkgutil.resolve_name(name)
