"""What the build refuses: a tree and a version header of two releases, and changed declarations."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

PLUGIN = Path(__file__).resolve().parents[2] / "slurm_plugin" / "select"


class Source:
    """The part of Slurm's source tree that prepare-headers.sh reads, and where it writes."""

    def __init__(self, folder: Path, major: str, minor: str, micro: str) -> None:
        self.tree, self.build = folder / "slurm", folder / "build"
        (self.tree / "slurm").mkdir(parents=True)
        (self.tree / "META").write_text(
            f"  Name:\t\tslurm\n  Major:\t{major}\n  Minor:\t{minor}\n  Micro:\t{micro}\n"
        )
        (self.tree / "slurm" / "slurm_version.h.in").write_text("#undef SLURM_VERSION_NUMBER\n")
        self.header = self.build / "slurm" / "slurm_version.h"

    def prepare(self) -> subprocess.CompletedProcess[str]:
        """Runs prepare-headers.sh."""
        command = ["sh", PLUGIN / "prepare-headers.sh", self.tree, self.build]
        return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("release", "number"),
    [(("22", "05", "8"), 0x160508), (("24", "11", "5"), 0x180B05), (("26", "05", "0"), 0x1A0500)],
)
def test_the_version_header_is_made_from_the_tree(
    tmp_path: Path, release: tuple[str, str, str], number: int
) -> None:
    source = Source(tmp_path, *release)
    assert source.prepare().returncode == 0
    assert int(source.header.read_text().split()[-1], 16) == number
    # a second build finds the header it made
    assert source.prepare().returncode == 0


@pytest.mark.parametrize("there", ["#define SLURM_VERSION_NUMBER 0x1a0505\n", "/* no number */\n"])
def test_a_version_header_of_another_release_stops_the_build(tmp_path: Path, there: str) -> None:
    """26.05.5's header beside 26.05.3's tree made a plugin that 26.05.5 loads and never asks."""
    source = Source(tmp_path, "26", "05", "3")
    source.header.parent.mkdir(parents=True)
    source.header.write_text(there)
    done = source.prepare()
    assert done.returncode == 1
    (said,) = done.stderr.splitlines()
    assert "slurm_version.h: version" in said
    assert "says 0x1a0503 (26.05.3)" in said
    assert source.header.read_text() == there


@pytest.mark.skipif(not shutil.which("make"), reason="no make here")
def test_make_stops_there(tmp_path: Path) -> None:
    source = Source(tmp_path, "26", "05", "3")
    source.header.parent.mkdir(parents=True)
    source.header.write_text("#define SLURM_VERSION_NUMBER 0x1a0505\n")
    command = ["make", "-C", PLUGIN, f"SLURM_SRC={source.tree}", f"SLURM_BUILD={source.build}"]
    done = subprocess.run(
        [*command, f"OUT={tmp_path}/out"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "must be the source of the very release" in done.stderr
    assert not (tmp_path / "out" / "advise.o").exists()
