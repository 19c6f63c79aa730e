"""What own and lent GPUs take on a site: measured by a probe, fitted, and read by `remote=auto`.

The model is the R queue's (Markthub et al., PDCAT 2014, eqs. 5 and 6): seconds = calls times the
latency of a call + GB moved over the bandwidth + all else, which here is kernels times a kernel's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import yaml

from policies.errors import ProfileError
from policies.remote.r_queue.measured import AboveZero, FromZero, Measured, Side, parse
from slurm_plugin.base.rows_file import NO_JSON
from slurm_plugin.errors import RemoteError

#: Beyond it, no log of a probe but a mistake.
MOST_LINES = 10_000
#: Seconds of a GB that takes no time beside the calls that move it.
NOTHING_S = 1e-6


class ProbeRun(msgspec.Struct, frozen=True):
    """One line of a probe; it may say more than this."""

    calls: FromZero
    gb: FromZero
    kernels: FromZero
    seconds: AboveZero
    #: GB from GPU to GPU, and how many jobs did the same at once.
    gpu_gb: FromZero = 0.0
    jobs: Annotated[float, msgspec.Meta(ge=1, lt=1e12)] = 1.0


def load(path: Path) -> Measured:
    """The file with this `text`. RemoteError: one line with the file and what is expected."""
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise RemoteError(f"{path}: cannot be read: {error}") from error
    except ProfileError as error:
        raise RemoteError(str(error)) from error


def text(found: Measured) -> str:
    """The file that `load` reads."""
    return yaml.safe_dump(msgspec.to_builtins(found), sort_keys=False)


def runs(path: Path) -> list[tuple[float, ...]]:
    """A probe's lines: calls, GB moved, kernels, seconds, GB from GPU to GPU, jobs at once.

    RemoteError names the line that is none.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RemoteError(f"{path}: cannot be read: {error}") from error
    if not 0 < len(lines) <= MOST_LINES:
        raise RemoteError(f"{path}: {len(lines)} lines; expected 1 to {MOST_LINES}")
    return [_run(f"{path}:{number}", line) for number, line in enumerate(lines, 1)]


def _run(where: str, line: str) -> tuple[float, ...]:
    try:
        return msgspec.structs.astuple(msgspec.json.decode(line, type=ProbeRun))
    except NO_JSON as error:
        shown = '{"calls": 100, "gb": 0.1, "kernels": 3, "seconds": 0.5}'
        why = f"{line[:80]!r}: {error}"
        raise RemoteError(f"{where}: {why}; expected numbers as {shown}") from error


def fit(what: str, lines: Sequence[Sequence[float]]) -> Side:
    """Least squares of the relative error; `what` names the runs in an error.

    RemoteError where the runs do not tell calls, bytes and kernels apart, or where times do not
    grow with each of them. Bytes among GPUs and jobs at once count where some run has them.
    """
    import numpy as np

    table = np.asarray(lines, dtype=float)
    calls, gb, kernels, seconds, gpu_gb, jobs = table.T
    columns = {"calls": calls, "gb": gb, "kernels": kernels}
    columns |= {"gpu_gb": gpu_gb} if gpu_gb.any() else {}
    columns |= {"jobs": gb * (jobs - 1)} if (jobs > 1).any() else {}
    counts = np.stack([*columns.values()], axis=1) / seconds[:, None]
    # Of columns as large as each other: GB are few where calls are many.
    sizes = np.linalg.norm(counts, axis=0)
    if not sizes.all() or np.linalg.matrix_rank(counts / sizes, tol=1e-3) < len(columns):
        raise RemoteError(
            f"{what}: the runs do not tell calls, bytes and kernels apart; expected some with many"
            " calls, some with many bytes, some with many kernels"
        )
    found, *_ = np.linalg.lstsq(counts / sizes, np.ones(len(table)), rcond=None)
    each = dict(zip(columns, (found / sizes).tolist(), strict=True))
    # Others at once may cost nothing, and bytes that stay there nothing beside the calls for them.
    least = {"jobs": 0.0, "gpu_gb": NOTHING_S}
    each |= {name: max(low, each[name]) for name, low in least.items() if name in each}
    for name, value in each.items():
        if value <= 0 and name not in least:
            raise RemoteError(
                f"{what}: times do not grow with {name}; expected runs on an idle node, more of"
                f" them, or longer ones"
            )
    error = float(np.abs(counts @ np.array([each[name] for name in columns]) - 1).max())
    return Side(
        each["calls"],
        1 / each["gb"],
        each["kernels"],
        error,
        gpu_gb_s=1 / each["gpu_gb"] if "gpu_gb" in each else None,
        shared=each["jobs"] / each["gb"] if "jobs" in columns else None,
    )
