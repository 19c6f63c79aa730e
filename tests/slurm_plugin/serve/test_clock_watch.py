"""The clock is set while the engine runs: what it kept by it is forgotten, or bounded."""

import logging

import pytest
from machines_in_tests import BASIC

from slurm_plugin.decide.decision_log import DecisionLog
from slurm_plugin.gates.capacity_cache import CapacityCache
from slurm_plugin.queue.capacity import Hold
from slurm_plugin.serve import setup
from slurm_plugin.serve.gates_loop import GatesLoop
from slurm_plugin.serve.run import ClockWatch
from slurm_plugin.serve.service import CLOCK_SET, Engine

HOUR_S = 3600.0


@pytest.mark.parametrize(
    ("step_s", "said"),
    [
        (HOUR_S, "forward by 3600 s"),
        (-HOUR_S, "back by 3600 s"),
        (0.5, ""),
    ],
    ids=["forward", "back", "a correction"],
)
def test_a_step_of_the_clock_is_told_once(step_s, said, caplog):
    ahead, told = [1000.0], list[str]()
    watch = ClockWatch(told.append, lambda: ahead[0])
    watch.check()
    ahead[0] += step_s
    with caplog.at_level(logging.WARNING):
        watch.check()
        watch.check()
    assert told == ([CLOCK_SET] if said else [])
    assert [said in record.getMessage() for record in caplog.records] == ([True] if said else [])


def test_after_a_step_nothing_is_given_or_kept_until_slurm_was_read_anew(tmp_path):
    """A promise of a moment would else keep its GPUs for an hour."""
    path = tmp_path / "gputopo.yaml"
    path.write_text(f"{BASIC}enforcement: slots\n".format(folder=tmp_path))
    cache = CapacityCache()
    first = setup.load(path, cache)
    engine = Engine(first, DecisionLog(first.config.decision_log), setup.load)
    GatesLoop(engine)
    now = 1e6
    cache.look({}, (), None, now)
    cache.promise("t", Hold({"dgx1": 3}), now)
    engine.say(CLOCK_SET)
    assert not cache.promises
    assert not cache.is_fresh(now - HOUR_S)
