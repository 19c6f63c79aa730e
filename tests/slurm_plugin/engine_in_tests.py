"""An engine of the basic configuration in a folder, and its file there."""

from pathlib import Path

from machines_in_tests import BASIC

from slurm_plugin.decide.decision_log import DecisionLog
from slurm_plugin.serve import setup
from slurm_plugin.serve.service import Engine


def written(folder: Path, text: str = BASIC) -> Path:
    path = folder / "gputopo.yaml"
    path.write_text(text.format(folder=folder))
    return path


def an_engine(folder: Path, text: str = BASIC, *cache: object) -> Engine:
    first = setup.load(written(folder, text), *cache)
    return Engine(first, DecisionLog(first.config.decision_log), setup.load)
