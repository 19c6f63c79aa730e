"""What wheel, sdist and packages have in them: every file of our packages, whatever its folder."""

import os
import re
import stat
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from configparser import ConfigParser
from pathlib import Path

import pytest

from slurm_cluster.cluster import cluster_sh, image

ROOT = Path(__file__).resolve().parents[2]
#: A package of its own, which nothing of the product's has in it.
PAPERS = "papers/"
#: Of it, what is for whoever reads the repository or builds it.
BESIDE_PAPERS = ("papers/results/", "papers/setup.cfg", "papers/pyproject.toml")
#: For whoever reads the repository.
NOT_INSTALLED = {"slurm_cluster/README.md"}
#: Of slurm_plugin, what stage.sh compiles or puts elsewhere; slurm_cluster is for tests alone.
ELSEWHERE = ("slurm_cluster/", *(f"slurm_plugin/{folder}/" for folder in (
    "select", "spank", "node/carry", "serve/systemd", "tell/monitoring")))  # fmt: skip
#: In place of make, which would want Slurm's headers: what it makes, empty.
MAKE = """#!/bin/sh
cd "$3" && touch gputopo.so gputopo-carry gputopo-wire.so
"""


def files() -> list[str]:
    """All that git does not ignore, as `make packages` takes it."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.check_output(listed, cwd=ROOT, text=True).split("\0")
    return sorted(name for name in set(names) if name and (ROOT / name).is_file())


@pytest.fixture(scope="module")
def ours() -> set[str]:
    """The files of the packages that setup.cfg names."""
    config = ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg")
    parts = config["options.packages.find"]["include"].replace("*", "/").split()
    return {name for name in files() if name.startswith(tuple(parts))} - NOT_INSTALLED


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A copy of the tree: a build leaves files beside the sources."""
    copy = tmp_path_factory.mktemp("source")
    with subprocess.Popen(["tar", "-x", "-C", copy], stdin=subprocess.PIPE) as unpacking:
        pack = ["tar", "-c", "--null", "-T", "-"]
        names = "\0".join(files()).encode()
        subprocess.run(pack, cwd=ROOT, input=names, stdout=unpacking.stdin, check=True)
    assert unpacking.returncode == 0
    return copy


def built(kind: str, source: Path, out: Path) -> Path:
    """The wheel or the sdist of a source tree, by the setuptools that is there."""
    make = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", make, out], cwd=source, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    [made] = out.iterdir()
    return made


def in_wheel(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def lacking(expected: Iterable[str], found: set[str]) -> str:
    return " ".join(sorted(set(expected) - found))


def test_the_wheel_has_every_file_and_so_has_one_that_is_made_of_the_sdist(source, ours, tmp_path):
    for folder in ("wheel", "sdist", "again"):
        (tmp_path / folder).mkdir()
    wheel = in_wheel(built("wheel", source, tmp_path / "wheel"))
    assert lacking(ours, wheel) == "", "[options.package_data] of setup.cfg lacks them"
    assert lacking(wheel, ours) == "", "in the wheel, and not of ours"
    with tarfile.open(built("sdist", source, tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    [unpacked] = (tmp_path / "unpacked").iterdir()
    assert not (unpacked / PAPERS).exists()
    assert lacking(ours, in_wheel(built("wheel", unpacked, tmp_path / "again"))) == ""


@pytest.fixture(scope="module")
def installed(source, tmp_path_factory) -> Path:
    """The wheel's files alone, as pip would put them anywhere."""
    folder = tmp_path_factory.mktemp("wheel")
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(built("wheel", source, folder)) as archive:
        archive.extractall(site)
    return site


#: Calls every command and group for its help, and prints its words.
ALL_HELP = """
import sys, click, slurm_plugin
from click.testing import CliRunner
from slurm_plugin.cli import COMMANDS, cli

assert slurm_plugin.__file__.startswith(sys.argv[1]), slurm_plugin.__file__

def walk(command, words):
    yield words
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            if words or name in COMMANDS:
                yield from walk(command.get_command(click.Context(command), name), [*words, name])

for words in walk(cli, []):
    done = CliRunner().invoke(cli, [*words, "--help"])
    assert done.exit_code == 0, (words, done.output)
    print(*words)
"""
NODE_PROGRAM = """
import sys, pathlib
from slurm_plugin.node import program

program.write(pathlib.Path(sys.argv[1]))
"""


def run_from(site: Path, script: str, *words: object) -> str:
    """What Python prints that has these files and the packages that we need."""
    environ = {**os.environ, "PYTHONPATH": str(site)}
    argv = [sys.executable, "-c", script, *map(str, words)]
    done = subprocess.run(argv, cwd=site.parent, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_from_the_wheel_alone_every_command_has_its_help(installed):
    lines = run_from(installed, ALL_HELP, installed).splitlines()
    assert {"why", "serve", "topology show", "remote presets"} <= set(lines)


def test_from_the_wheel_alone_the_nodes_program_is_written(installed, tmp_path):
    run_from(installed, NODE_PROGRAM, tmp_path / "gputopo-node")
    assert (tmp_path / "gputopo-node").stat().st_mode & stat.S_IXUSR


@pytest.mark.cluster
@pytest.mark.long("both plugins are compiled")
def test_from_the_wheel_alone_both_plugins_compile(installed):
    # So that there is the image: a compiler, and the source of the cluster's Slurm.
    assert cluster_sh("builder", "true").returncode == 0
    mount = f"{installed}:/wheel:ro"
    command = (
        "cp -r /wheel /tmp/wheel && cd /tmp/wheel/slurm_plugin && make -sC spank gputopo.so"
        " && make -sC node/carry TO=/tmp && make -sC select select_cons_tres.so"
        " && ls spank/gputopo.so select/select_cons_tres.so /tmp/gputopo-carry /tmp/gputopo-wire.so"
    )
    argv = [
        "docker",
        "run",
        "--rm",
        "-v",
        mount,
        image("builder", ""),
        "sh",
        "-c",
        command,
    ]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(done.stdout.split()) == 4


def test_the_wheel_of_papers_has_every_file_and_is_for_this_release(source, tmp_path):
    expected = {name for name in files() if name.startswith(PAPERS)}
    expected = {name for name in expected if not name.startswith(BESIDE_PAPERS)}
    wheel = built("wheel", source / PAPERS, tmp_path)
    found = in_wheel(wheel)
    assert lacking(expected, found) == "", "papers/setup.cfg lacks them"
    assert lacking(found, expected) == "", "in the wheel, and not of papers"
    ours, theirs = (ConfigParser(interpolation=None) for _ in range(2))
    ours.read(ROOT / "setup.cfg")
    theirs.read(ROOT / PAPERS / "setup.cfg")
    release = ours["metadata"]["version"]
    assert theirs["metadata"]["version"] == release
    assert theirs["options"]["install_requires"].split() == [f"slurm-gputopo=={release}"]


def test_the_packages_have_every_file_where_it_belongs(source, ours, tmp_path):
    (tmp_path / "bin").mkdir()
    make = tmp_path / "bin" / "make"
    make.write_text(MAKE)
    make.chmod(make.stat().st_mode | stat.S_IXUSR)
    path = f"{make.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "WHEELS": str(tmp_path / "none"), "SLURM_SRC": ""}
    staged = ["sh", "packaging/stage.sh", str(tmp_path / "out")]
    done = subprocess.run(staged, cwd=source, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    root = tmp_path / "out" / "slurm-gputopo"
    found = {str(path.relative_to(root)) for path in root.rglob("*")}
    home, share = "usr/lib/slurm-gputopo", "usr/share/gputopo"
    assert lacking((f"{home}/{n}" for n in ours if not n.startswith(ELSEWHERE)), found) == ""
    assert not [name for name in found if name.startswith(f"{home}/{PAPERS}")]
    for folder, place in (("serve/systemd", "usr/lib/systemd/system"), ("tell/monitoring", share)):
        within = f"slurm_plugin/{folder}/"
        moved = (f"{place}/{n.removeprefix(within)}" for n in ours if n.startswith(within))
        assert lacking(moved, found) == ""
    doc = "usr/share/doc/slurm-gputopo"
    pages = [name for name in files() if re.fullmatch(r"docs/.*\.md|README\.md|SECURITY\.md", name)]
    assert lacking((f"{doc}/{name}" for name in pages), found) == ""
    assert not [name for name in found if name.startswith(doc) and name.endswith((".json", ".svg"))]
    assert "usr/share/man/man5/gputopo.yaml.5" in found


def test_a_page_that_a_message_names_is_one_of_docs():
    """Under that name: packages have them below /usr/share/doc/slurm-gputopo."""
    texts = (ROOT / name for name in files() if name.startswith(("slurm_plugin/", "lua_bridge/")))
    named = {
        page
        for text in texts
        if text.suffix in (".py", ".lua", ".c", ".h", ".service")
        for page in re.findall(r"docs/[\w/-]+\.md", text.read_text())
    }
    assert len(named) > 10
    assert lacking(named - {"docs/NAME.md"}, set(files())) == ""
