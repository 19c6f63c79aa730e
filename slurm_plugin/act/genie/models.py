"""The model database in memory, so that a submit never waits for a disk."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from policies.performance import PerformanceModel
from policies.performance.similarity import Traits
from slurm_plugin.errors import PluginError
from slurm_plugin.learn.speed_models.database import Database, Profile, ProfileMatch, among

logger = logging.getLogger(__name__)

ModelKey = tuple[str, str]

#: Names that clients make up must not fill the memory.
MAX_KEPT = 4096


class Models(Mapping[ModelKey, PerformanceModel]):
    """(profile, task) -> model. What was never profiled gets the model of the most similar."""

    def __init__(self, profiles: tuple[Profile, ...], path: Path) -> None:
        self._profiles = profiles
        self._path = path
        #: What the database has for a profile; None where it has nothing similar either.
        self.match = lru_cache(MAX_KEPT)(self._match)

    def _match(self, key: ModelKey) -> ProfileMatch | None:
        try:
            return among(self._profiles, Traits(key[0]), key[1], self._path)
        except PluginError:
            return None

    def __getitem__(self, key: ModelKey) -> PerformanceModel:
        match = self.match(key)
        if match is None:
            raise KeyError(key)
        return match.model

    def __iter__(self) -> Iterator[ModelKey]:
        return iter([(profile.traits.name, profile.task) for profile in self._profiles])

    def __len__(self) -> int:
        return len(self._profiles)


class ModelFile:
    """The database's file, which is read again when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._logged = ""
        self.models = Models((), path)

    def refresh(self) -> bool:
        """Read the file where it is new; whether the models changed. Never raises."""
        try:
            info = self._path.stat()
            seen = (info.st_mtime_ns, info.st_size)
            if seen == self._seen:
                return False
            self.models = Models(tuple(Database(self._path).all()), self._path)
            self._seen, self._logged = seen, ""
        except (OSError, PluginError) as error:
            # Those known already stay; a missing file is logged once.
            if str(error) != self._logged:
                logger.warning("genie: %s; %d profiles are known", error, len(self.models))
            self._logged = str(error)
            return False
        logger.info("genie: %d profiles in %s", len(self.models), self._path)
        return True
