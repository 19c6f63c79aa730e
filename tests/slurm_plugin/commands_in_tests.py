"""`gputopo` in the tests' own process."""

from click.testing import CliRunner

from slurm_plugin.cli import cli


def run(*args: str, code: int = 0) -> str:
    """All that the command prints; it ends with this status."""
    done = CliRunner().invoke(cli, args, prog_name="gputopo")
    assert done.exit_code == code, done.output
    return done.output


def refused(*args: str) -> str:
    """The one line by which the command refuses something wrong."""
    said = run(*args, code=2)
    assert said.startswith("Error: ")
    assert said.count("\n") == 1
    return said
