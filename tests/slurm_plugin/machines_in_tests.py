"""The named machines and shorthands the engine's tests share."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.base.placement import CandidateNode, PlacementQuestion
from slurm_plugin.base.protocol import Place, SlotsKeys, Submit
from slurm_plugin.config import settings as config
from slurm_plugin.config.settings import Config
from slurm_plugin.decide.decide import Decider
from slurm_plugin.decide.load_machines import load_machines
from slurm_plugin.decide.rules import Rules

BASIC = """
socket: {folder}/engine.sock
state_dir: {folder}/state
kill_switch: {folder}/off
decision_log: {{path: {folder}/decisions.jsonl}}
waiting: {{max_postponements: 3, max_wait_s: 100, step_s: 30}}
nodes:
  - {{nodes: "dgx[1-3]", topology: dgx1v}}
  - {{nodes: mirrored, topology: dgx1v, slurm_index: [7, 6, 5, 4, 3, 2, 1, 0]}}
  - {{nodes: minsky1, topology: minsky}}
partitions:
  default: {{mode: enforce, policy: mapa}}
  watched: {{mode: observe}}
  quiet: {{mode: "off"}}
  plain: {{policy: first-fit}}
  picky: {{hints: {{min-utility: 0.9}}, users_may_set: [pattern]}}
"""


def named(rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    """The rows of a table as a test's parameters; the first word of each is its id."""
    return [pytest.param(*row[1:], id=row[0]) for row in rows]


def basic_config(folder: Path, text: str = BASIC) -> Config:
    return config.parse(text.format(folder=folder), folder / "gputopo.yaml")


def basic_decider(folder: Path, text: str = BASIC) -> Decider:
    return decider_of(basic_config(folder, text))


def decider_of(settings: Config) -> Decider:
    from policies.registry import registry

    return Decider(load_machines(settings), Rules(settings), settings.waiting, registry.get)


def mask(*gpus: int) -> int:
    return sum(1 << gpu for gpu in gpus)


def node(name: str, free: int, own: int = 0, total: int = 8, weight: int = 1) -> CandidateNode:
    return CandidateNode(name, total, free, own, weight)


def question(*nodes: CandidateNode, **more: object) -> PlacementQuestion:
    return place(*nodes, **more)


def a_submit(**more: object) -> Submit:
    """A job of the slots mode, of keys of both classes; what is not given is 0 or unset."""
    keys = {name: more.pop(name) for name in list(more) if name in SlotsKeys.__match_args__}
    values = dict.fromkeys(("gpus", "nodes", "per_node", "tasks"), 0) | {"id": 1, "uid": 1000}
    slots = SlotsKeys(**{"form": "node", **keys})
    return Submit(**{**values, "slots": slots, **more})


def place(*nodes: CandidateNode, **more: object) -> Place:
    values: dict[str, object] = {
        "id": 1, "job": 7, "array": 0, "uid": 1000, "postponed": 0, "waited_s": 0,
    }  # fmt: skip
    return Place(candidates=nodes, **{**values, **more})
