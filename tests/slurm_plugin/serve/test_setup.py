"""What is computed before the engine answers, and what afterwards."""

import gc
import os
import subprocess
import sys
import threading
import weakref
from types import SimpleNamespace

from engine_in_tests import written
from machines import of_boards

from gres_topology import catalog
from policies.contract.bits import Runs
from policies.contract.hint_keys import PATTERN
from slurm_plugin.serve import setup


def test_garbage_of_a_load_is_not_kept_with_what_lives_for_ever():
    class Garbage:
        def __init__(self) -> None:
            self.itself = self

    gone = weakref.ref(Garbage())
    config = SimpleNamespace(patterns={})
    gc.disable()
    try:
        setup.warm_up(SimpleNamespace(machines={}, config=config, policies=list))
    finally:
        gc.enable()
    gc.collect()
    assert gone() is None


def test_a_start_waits_for_no_pattern_that_a_hint_may_name(tmp_path, monkeypatch):
    """A reload does: the former configuration answers meanwhile."""
    asked = []

    def warm(policy, pattern, *rest):
        # Another test's engine may still compute ahead, in a thread of its own.
        if threading.current_thread() is threading.main_thread():
            asked.append(pattern)

    monkeypatch.setattr(setup, "_warm", warm)
    path = written(tmp_path)
    loaded = setup.load(path, in_haste=True)
    assert set(asked) == {"ring"}
    setup.warm_patterns(loaded, lambda: True)
    afterwards = len(asked)
    assert {"tree", "chain", "star", "all-to-all"} < set(asked)
    setup.load(path)
    assert asked[afterwards:] == asked[:afterwards]
    setup.warm_patterns(loaded, lambda: False)
    assert len(asked) == 2 * afterwards


def test_ahead_of_questions_every_set_of_free_gpus_is_asked_about_until_a_reload():
    asked = []

    def place(request, cluster):
        asked.append((request.gpus_per_node[0], cluster.nodes["minsky"].free))

    topology = catalog.load("minsky")
    policy = SimpleNamespace(name="p", place=place, hints=())
    machines = {name: SimpleNamespace(topology=topology) for name in ("a", "b")}
    loaded = SimpleNamespace(machines=machines, policies=lambda: [policy])
    setup.warm_masks(loaded, lambda: True)
    wanted = [(k, free) for free in range(1, 16) for k in range(1, free.bit_count() + 1)]
    assert asked == wanted
    setup.warm_masks(loaded, lambda: len(asked) < len(wanted) + 3)
    assert asked[len(wanted) :] == wanted[:4]


def test_of_a_large_node_all_patterns_are_asked_about_on_sets_that_differ(monkeypatch):
    asked = []

    own = threading.current_thread()

    def warm(*one: object) -> None:
        # Threads of other tests' engines may be at it, too.
        if threading.current_thread() is own:
            asked.append((one[1], one[3]))

    monkeypatch.setattr(setup, "_warm", warm)
    policy = SimpleNamespace(name="p", hints=(PATTERN,))
    plain = SimpleNamespace(name="plain", hints=())
    loaded = SimpleNamespace(
        machines={"a": SimpleNamespace(topology=of_boards())}, policies=lambda: [policy, plain]
    )
    setup.warm_masks(loaded, lambda: True)
    differ = list(Runs(of_boards().runs, of_boards().boards).each_least(32, 600))[:-1]
    assert len(differ) == 494
    patterns = ("ring", "tree", "chain", "star", "all-to-all")
    assert sorted(asked) == sorted(
        (pattern, free) for pattern in (*patterns, "ring") for free in differ
    )
    asked.clear()
    dgx2 = SimpleNamespace(topology=catalog.load("dgx2"))
    setup.warm_masks(SimpleNamespace(machines={"a": dgx2}, policies=lambda: [policy]), lambda: True)
    assert {pattern for pattern, _ in asked} == {"ring"}
    assert len(asked) == 80
    asked.clear()
    torus = SimpleNamespace(topology=catalog.load("torus-16"))
    setup.warm_masks(
        SimpleNamespace(machines={"a": torus}, policies=lambda: [policy]), lambda: True
    )
    assert asked == []


ASKED = """\
import sys
from pathlib import Path
from bench.request_lines import encode_request
from engine_in_tests import an_engine
from machines_in_tests import node, place
from policies.registry import registry

engine = an_engine(Path(sys.argv[1]))
two = node("dgx1", 0xFF, 0x7), node("dgx2", 0xFF, 0x7)
before = set(sys.modules)
for policy in registry.names():
    for nodes in (two[:1], two):
        asked = encode_request(place(*nodes, id=1, hint=f"policy={policy}"))
        answer = engine.answer(asked)
        assert answer.reply.startswith(b"use "), answer.reply
print(*sorted(set(sys.modules) - before))
"""


def test_no_question_waits_for_a_module_whatever_policy_a_hint_names(tmp_path):
    """Reading one from a busy disk once took a second, in slurmctld's time."""
    done = subprocess.run(
        [sys.executable, "-c", ASKED, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.returncode) == ("\n", 0), done.stderr
