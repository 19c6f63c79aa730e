"""Run by hand or by a live test: prints the state of a waiting job, without what is not set."""

import dataclasses
import json
import sys
from typing import Any

from slurm_plugin.slurm.runner import ProcessRunner
from slurm_plugin.tell.why.read import read_state
from slurm_plugin.tell.why.state import WaitingState

#: Of slurm.conf's values those that an answer goes by.
KEPT = ("PrivateData", "AccountingStorageEnforce")


def small(value: Any) -> Any:
    """Plain values, without the fields that have their defaults."""
    if dataclasses.is_dataclass(value):
        fields = {one.name: one for one in dataclasses.fields(value)}
        return {
            name: small(getattr(value, name))
            for name, one in fields.items()
            if getattr(value, name) != one.default and getattr(value, name) not in ((), {})
        }
    if isinstance(value, dict):
        return {key: small(one) for key, one in value.items()}
    return [small(one) for one in value] if isinstance(value, (tuple, list)) else value


def smallest(state: WaitingState) -> Any:
    """The same of a state, without slurm.conf."""
    settings = state.snapshot.settings
    kept = {key: settings.config[key] for key in KEPT if key in settings.config}
    settings = dataclasses.replace(settings, config=kept)
    snapshot = dataclasses.replace(state.snapshot, settings=settings)
    return small(dataclasses.replace(state, snapshot=snapshot, story={}))


if __name__ == "__main__":
    print(json.dumps(smallest(read_state(sys.argv[1], None, None, ProcessRunner(shows_all=True)))))
