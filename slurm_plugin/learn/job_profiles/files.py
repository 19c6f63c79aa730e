"""Profiles in YAML or JSON files, one job per file, as docs/profiles.md describes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import yaml

from gres_topology import plain_file
from policies.contract.interference import Interference, Kind
from slurm_plugin.errors import NO_YAML_VALUE, ConfigError

SUFFIXES = (".yaml", ".yml", ".json")
#: A directory with more is not one of profiles.
MOST_FILES = 10_000

_Count = Annotated[int, msgspec.Meta(ge=1, le=10**9)]
_Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
_Positive = Annotated[float, msgspec.Meta(gt=0)]
_NotNegative = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class _Alone(msgspec.Struct, forbid_unknown_fields=True):
    """Seconds alone, GPUs on one socket or over several."""

    gpus: _Count
    batch: _Count | None = None
    packed_s: _Positive | None = None
    spread_s: _Positive | None = None


class _Beside(msgspec.Struct, forbid_unknown_fields=True):
    """Times longer (`slowdown`), or seconds, beside one other job on the same socket."""

    gpus: _Count
    other: _Name
    other_gpus: _Count
    batch: _Count | None = None
    other_batch: _Count | None = None
    slowdown: Annotated[float, msgspec.Meta(ge=1)] | None = None
    packed_s: _Positive | None = None
    spread_s: _Positive | None = None


class Remote(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """How a job uses GPUs that it borrows; `network_share` and `sensitivity` are DRMaestro's."""

    run_s: _Positive | None = None  # seconds on local GPUs
    gpu_calls: _NotNegative = 0.0
    gpu_cpu_gb: _NotNegative = 0.0
    gpu_gpu_gb: _NotNegative = 0.0
    # Seconds of them that kernels take, on local GPUs.
    gpu_kernel_s: _NotNegative = 0.0
    # The share of its time that is network, on an idle network.
    network_share: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = None
    # The share by which a full network lengthens it.
    sensitivity: _NotNegative | None = None
    max_slowdown: Annotated[float, msgspec.Meta(ge=1)] | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    profile: _Name
    alone: list[_Alone] = []
    beside: list[_Beside] = []
    remote: Remote | None = None


class Profiles(NamedTuple):
    """What all files of a folder say."""

    #: Measured slowdowns of one job beside another.
    slowdowns: dict[tuple[Kind, Kind], float]
    #: Seconds alone over several sockets by those on one.
    spreads: dict[Kind, float]
    #: What jobs do with GPUs of other nodes, by profile.
    remote: dict[str, Remote]


def read_profiles(folder: Path | None) -> Profiles:
    """Every file of the folder, read once; ConfigError names file and place."""
    found = Profiles({}, {}, {})
    for path, file in _files(folder) if folder else ():
        found.slowdowns.update(_slowdowns(path, file))
        for run in file.alone:
            if run.packed_s and run.spread_s:
                kind = Kind(file.profile, run.batch or 0, run.gpus)
                found.spreads[kind] = run.spread_s / run.packed_s
        if file.remote is not None:
            found.remote[file.profile] = file.remote
    return found


def _files(folder: Path) -> Iterator[tuple[Path, _File]]:
    """Every profile of the folder with its file."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES)
    except OSError as error:
        raise ConfigError(
            f"{folder}: cannot be read: {error}; expected a directory of profiles"
            f" ({', '.join(SUFFIXES)})"
        ) from error
    if len(paths) > MOST_FILES:
        raise ConfigError(f"{folder}: {len(paths)} files; expected at most {MOST_FILES}")
    seen: dict[str, Path] = {}
    for path in paths:
        profile = _read(path)
        if profile.profile in seen:
            raise ConfigError(
                f"{path}: profile {profile.profile} stands in {seen[profile.profile]} already;"
                " keep one of the files"
            )
        seen[profile.profile] = path
        yield path, profile


def _read(path: Path) -> _File:
    try:
        data: Any = yaml.safe_load(plain_file.read_text(path))
        return msgspec.convert(data, _File)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}; docs/profiles.md says what a profile holds") from error
    except (OSError, yaml.YAMLError, *NO_YAML_VALUE) as error:
        raise ConfigError(f"{path}: cannot be read as YAML or JSON: {error}") from error


def _slowdowns(path: Path, profile: _File) -> Mapping[tuple[Kind, Kind], float]:
    alone = {(run.gpus, run.batch): run for run in profile.alone}
    slowdowns = {}
    for at, pair in enumerate(profile.beside):
        slowdown = pair.slowdown
        if slowdown is None:
            run = alone.get((pair.gpus, pair.batch))
            slowdown = _ratio(pair, run) if run else None
        if slowdown is None:
            raise ConfigError(
                f"{path}: beside[{at}]: expected `slowdown`, or packed_s or spread_s here and the"
                " same under `alone` for as many GPUs and the same batch"
            )
        kind = Kind(profile.profile, pair.batch or 0, pair.gpus)
        other = Kind(pair.other, pair.other_batch or 0, pair.other_gpus)
        slowdowns[kind, other] = slowdown
    return slowdowns


def _ratio(pair: _Beside, alone: _Alone) -> float | None:
    for beside_s, alone_s in ((pair.packed_s, alone.packed_s), (pair.spread_s, alone.spread_s)):
        if beside_s and alone_s:
            return beside_s / alone_s
    return None


def interference(*measured: Mapping[tuple[Kind, Kind], float]) -> Interference:
    """The model for these measurements; the first that knows a pair counts."""
    merged: dict[tuple[Kind, Kind], float] = {}
    for slowdowns in reversed(measured):
        merged |= slowdowns
    return Interference(merged)
