"""What lent GPUs cost in these experiments: the paper's rCUDA, or what a site has measured."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from policies.errors import ProfileError
from policies.remote.r_queue import NetworkSpeeds
from policies.remote.r_queue.measured import Measured, parse
from simulation.errors import SimulationError

#: Words of --middleware; any other is the file that `gputopo remote measure` wrote.
PAPERS, MEASURED = "paper", "measured"
PAPER_WIRES = NetworkSpeeds()
#: What was measured on the test cluster; its `where` says when and by what.
SAMPLE = Path(__file__).with_name("measured.yaml")


@cache
def found(middleware: str) -> Measured:
    """The measured figures behind the word; SimulationError for a file that has none."""
    path = SAMPLE if middleware == MEASURED else Path(middleware)
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError, ProfileError) as error:
        raise SimulationError(str(error)) from error


def wires_of(middleware: str) -> NetworkSpeeds:
    """The figures of eqs. 1 to 6."""
    return PAPER_WIRES if middleware == PAPERS else found(middleware).speeds(PAPER_WIRES)


def told(middleware: str) -> tuple[str, ...]:
    """A note on what was measured; none for the paper's."""
    if middleware == PAPERS:
        return ()
    said = found(middleware)
    return (
        f"Lent GPUs cost what was measured of {said.preset} ({said.where or middleware}), in place"
        f" of rCUDA: a call {said.remote.call_s * 1e3:.3f} ms, {said.remote.gb_s:.2f} GB/s; own"
        f" ones {said.local.call_s * 1e3:.3f} ms, {said.local.gb_s:.2f} GB/s. The network between"
        " a job's own nodes is the paper's (eq. 1), and no job says what its kernels take.",
    )
