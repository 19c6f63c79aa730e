"""The model database (GENIE, section 6): models with the runs they were fitted to, in SQLite."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from policies.errors import ProfileError
from policies.performance import INFERENCE, TRAINING, PerformanceModel, Run, fit, from_dict, to_dict
from policies.performance.similarity import Traits, borrowed, nearest
from slurm_plugin.base import whole_file
from slurm_plugin.errors import PluginError

#: Raised with every change of the tables.
VERSION = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS profiles (
    name TEXT NOT NULL,
    task TEXT NOT NULL,
    family TEXT NOT NULL,
    parameters_m REAL,
    model TEXT NOT NULL,
    runs TEXT NOT NULL,
    PRIMARY KEY (name, task)
)
"""


@dataclass(frozen=True, slots=True)
class Profile:
    """A job's measured speeds, as the database has them."""

    traits: Traits
    task: str
    model: PerformanceModel
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class ProfileMatch:
    """What the database has for a wanted profile: itself, or what stands in for it."""

    profile: Profile
    model: PerformanceModel
    likeness: float = 1.0
    #: What was used instead; empty where it is the profile itself.
    note: str = ""


class Database:
    """One file; opened for each question, so that readers and writers may be many."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def put(self, profile: Profile) -> None:
        """Store a profile in the place of an older one of its name and task."""
        row = (
            profile.traits.name,
            profile.task,
            profile.traits.family,
            profile.traits.parameters_m,
            json.dumps(to_dict(profile.model)),
            json.dumps([list(asdict(run).values()) for run in profile.runs]),
        )
        with self._open(write=True) as connection:
            connection.execute("INSERT OR REPLACE INTO profiles VALUES (?, ?, ?, ?, ?, ?)", row)

    def fit(
        self,
        traits: Traits,
        task: str,
        kind: str,
        runs: Sequence[Run],
        startup_s: float,
        *,
        add: bool,
    ) -> Profile:
        """Fit and store. `add`: the stored runs count, too, and what is not given is as stored.

        `startup_s` is the seconds before the first iteration.
        """
        before = self.get(traits.name, task) if add and self.path.exists() else None
        if before is not None:
            runs = [*before.runs, *runs]
            family = traits.family or before.traits.family
            parameters_m = traits.parameters_m or before.traits.parameters_m
            traits = Traits(traits.name, family, parameters_m)
            startup_s = startup_s or before.model.startup_s
        profile = Profile(traits, task, fit(kind, runs, startup_s), tuple(runs))
        self.put(profile)
        return profile

    def get(self, name: str, task: str = TRAINING) -> Profile | None:
        """The profile of that name and task; None where there is none."""
        with self._open() as connection:
            rows = connection.execute(
                "SELECT * FROM profiles WHERE name = ? AND task = ?", (name, task)
            ).fetchall()
        return self._profile(rows[0]) if rows else None

    def all(self) -> list[Profile]:
        """Every profile, by name and task."""
        with self._open() as connection:
            rows = connection.execute("SELECT * FROM profiles ORDER BY name, task").fetchall()
        return [self._profile(row) for row in rows]

    def complete(self, start: str) -> str:
        """The one stored name that begins so; else `start` itself."""
        names = {one.traits.name for one in self.all() if one.traits.name.startswith(start)}
        return names.pop() if len(names) == 1 else start

    def find(self, wanted: Traits, task: str = TRAINING) -> ProfileMatch:
        """The wanted profile, else its other task's, else the likest one's; else PluginError."""
        return among(self.all(), wanted, task, self.path)

    def _profile(self, row: Sequence[object]) -> Profile:
        name, task, family, parameters, model, runs = row
        try:
            return Profile(
                Traits(str(name), str(family), _float(parameters)),
                str(task),
                from_dict(json.loads(str(model))),
                tuple(Run(*values) for values in json.loads(str(runs))),
            )
        except (ProfileError, TypeError, ValueError) as error:
            raise PluginError(f"{self.path}: profile {name}: {error}") from error

    @contextlib.contextmanager
    def _open(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        if not write and not self.path.exists():
            raise PluginError(f"{self.path}: no such file; add a profile with gputopo profile fit")
        mode = "rwc" if write else "ro"
        try:
            with whole_file.as_owner(self.path, makes=write):
                uri = f"{self.path.absolute().as_uri()}?mode={mode}"
                with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
                    self._check(connection, write)
                    with connection:
                        yield connection
        except (sqlite3.Error, OSError) as error:
            raise PluginError(
                f"{self.path}: {error}; expected a database of gputopo profile fit"
            ) from error

    def _check(self, connection: sqlite3.Connection, write: bool) -> None:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if write and version == 0:
            with connection:
                connection.execute(_TABLES)
                connection.execute(f"PRAGMA user_version = {VERSION}")
        elif version != VERSION:
            raise PluginError(
                f"{self.path}: version {version}; expected {VERSION}: a database of gputopo profile"
                " fit of this release"
            )


def among(profiles: Sequence[Profile], wanted: Traits, task: str, path: Path) -> ProfileMatch:
    """The same among profiles already read; `path` is for the message."""
    by_key = {(profile.traits.name, profile.task): profile for profile in profiles}
    exact = by_key.get((wanted.name, task))
    if exact is not None:
        return ProfileMatch(exact, exact.model)
    other = by_key.get((wanted.name, TRAINING if task == INFERENCE else INFERENCE))
    if other is not None:
        note = f"{wanted.name} was profiled for {other.task} only; its compute time is used"
        return ProfileMatch(other, other.model, note=note)
    known = [profile for profile in profiles if profile.task == task]
    best = nearest(wanted, [profile.traits for profile in known])
    if best is None:
        names = ", ".join(sorted({profile.traits.name for profile in profiles}))
        raise PluginError(
            f"no profile {wanted.name!r} in {path}, nor one like it; expected one of:"
            f" {names or 'none yet, add one with gputopo profile fit'}"
        )
    traits, like = best
    stand_in = next(profile for profile in known if profile.traits == traits)
    note = f"{wanted.name} was never profiled; {traits.name} stands in (likeness {like:.2f})"
    return ProfileMatch(stand_in, borrowed(stand_in.model, like), like, note)


def _float(value: object) -> float | None:
    return None if value is None else float(str(value))
