"""What is installed beside us is of releases that we know."""

import configparser
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

#: Bound by the release of Slurm beside it.
FREE = {"pyslurm"}


def requirements() -> dict[str, str]:
    """Every package that we name, and its bounds."""
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(Path(__file__).parents[2] / "setup.cfg")
    texts = [settings["options"]["install_requires"], *settings["options.extras_require"].values()]
    lines = [line for text in texts for line in text.split() if "%(" not in line]
    return {re.split(r"[<>=]", line)[0]: line for line in lines}


@pytest.mark.parametrize(("name", "line"), requirements().items())
def test_a_package_is_bound_below_its_next_major_release(name, line):
    if name in FREE:
        return
    found = re.fullmatch(r"[\w\-]+>=([\d.]+),<(\d+)", line)
    assert found is not None, line
    try:
        major = int(version(name).split(".")[0])
    except PackageNotFoundError:
        return  # an extra that is not installed here
    assert major < int(found[2]), "raise the bound once the tests pass with it"


def test_the_command_line_ends_as_it_should_with_a_click_before_8_2():
    """Debian's: it lacks an exception that newer ones raise where no arguments are given."""
    program = (
        "import click; vars(click.exceptions).pop('NoArgsIsHelpError', None)\n"
        "from slurm_plugin.cli import cli\n"
        "cli(['place', '--machine', 'nosuch', '--free', '0', '--gpus', '1'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 2
    assert "nosuch" in done.stderr
    assert "Traceback" not in done.stderr


#: msgspec before 0.20, Debian's: its errors are no ValueErrors.
OLD_MSGSPEC = """
import sys, msgspec
from pathlib import Path
new = msgspec.DecodeError
class DecodeError(Exception): pass
class ValidationError(DecodeError): pass
def old(decode):
    def decoded(*words, **options):
        try:
            return decode(*words, **options)
        except new as error:
            raise DecodeError(str(error)) from None
    return decoded
class Decoder:
    def __init__(self, *words):
        self.decode = old(new_decoder(*words).decode)
new_decoder, msgspec.json.Decoder = msgspec.json.Decoder, Decoder
msgspec.DecodeError, msgspec.ValidationError = DecodeError, ValidationError
msgspec.json.decode = old(msgspec.json.decode)
from slurm_plugin.act.defrag import record
from slurm_plugin.errors import PluginError
from slurm_plugin.learn.part_marks import marks
for read in (marks.read, record.read):
    try:
        read(Path(sys.argv[1]))
    except PluginError as error:
        print(error)
"""


def test_a_damaged_file_is_said_in_one_line_with_a_msgspec_before_0_20(tmp_path):
    damaged = tmp_path / "damaged"
    damaged.write_text("x\n")
    words = [sys.executable, "-c", OLD_MSGSPEC, str(damaged)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert [line.split(": ")[0] for line in done.stdout.splitlines()] == [
        f"{damaged}:1",
        str(damaged),
    ], done.stderr
    assert not done.stderr


def test_a_start_loads_no_library_that_few_configurations_need():
    """Graphs are for topo-aware, patterns from files and the R queue's flows alone."""
    program = "import sys, slurm_plugin.serve.run; sys.exit('networkx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
