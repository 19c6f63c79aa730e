"""The loops that look at the queue: one reading serves them all, and nobody reads without need."""

import asyncio
import logging
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from engine_in_tests import an_engine
from genie_in_tests import GENIE, TwoNodes, a_node, a_shaping
from machines_in_tests import BASIC
from slots_in_tests import Remembering, gated

from gres_topology import Network
from gres_topology.slurm_files import topology_shown
from gres_topology.slurm_files.network import Networks
from slurm_plugin.act.gates.capacity_cache import CapacityCache
from slurm_plugin.act.gates.plan import GatePlan
from slurm_plugin.act.gates.reconciler import GateReconciler
from slurm_plugin.act.lending.at_start.planning import StartPlan
from slurm_plugin.act.lending.at_start.reconciler import LoanReconciler
from slurm_plugin.act.lending.matcher import LoanMatcher
from slurm_plugin.decide.kept_nodes import KeptNodes, KeptTables, ToldNodes
from slurm_plugin.errors import PluginError, SlurmError
from slurm_plugin.learn import by_feature
from slurm_plugin.queue.backfill import WaitingLine
from slurm_plugin.queue.capacity import Hold
from slurm_plugin.queue.free_history import FreeHistory
from slurm_plugin.serve import run, setup
from slurm_plugin.serve.loops.gates import GatesLoop
from slurm_plugin.serve.loops.lending import LendingLoop
from slurm_plugin.serve.loops.neighbours import NeighboursLoop
from slurm_plugin.serve.loops.network import IDLE_S, POLL_S, NetworkLoop
from slurm_plugin.serve.loops.nodes import GATHER_S, TOLD_S, UNTOLD_S, NodesLoop
from slurm_plugin.serve.loops.queue_loop import QueueLoop, ReconcilerLoop
from slurm_plugin.serve.loops.shaping import ShapingLoop
from slurm_plugin.serve.loops.site import SETTLED_S, SiteLoop
from slurm_plugin.serve.run import ClockWatch
from slurm_plugin.serve.service import ANEW
from slurm_plugin.serve.site_figures import figures_of
from slurm_plugin.slurm.interface import NOW

HOUR_S = 3600.0
REMOTE = "remote: {{allow: yes}}\n"


def loops(
    folder: Path, monkeypatch: pytest.MonkeyPatch, slurm: TwoNodes, text: str
) -> list[QueueLoop]:
    """All loops of an engine with this configuration."""
    a_shaping(folder)
    monkeypatch.setattr(setup.choose, "client", lambda _: slurm)
    engine = an_engine(folder, BASIC + text)
    return [kind(engine) for kind in (GatesLoop, ShapingLoop, LendingLoop, NeighboursLoop)]


def look(all_loops: list[QueueLoop]) -> None:
    """All are due at once."""

    async def together() -> None:
        since = time.monotonic()
        await asyncio.gather(*(one.poll(since) for one in all_loops))

    asyncio.run(together())


@pytest.mark.parametrize("text", [GENIE + REMOTE, GENIE + REMOTE + "enforcement: slots\n"])
def test_shaping_lending_and_neighbours_look_at_one_reading(tmp_path, monkeypatch, text):
    slurm = TwoNodes()
    ours = loops(tmp_path, monkeypatch, slurm, text)
    ours[0].engine.setup.neighbours.is_wanted = True
    look(ours)
    assert (slurm.asked["queue"], slurm.asked["nodes"]) == (1, 1)
    assert ours[0].engine.setup.neighbours.age_s() is not None


def test_where_nothing_is_lent_or_asked_for_slurm_is_read_for_old_loans_once(tmp_path, monkeypatch):
    """A former engine may have left donors behind."""
    slurm = TwoNodes()
    ours = loops(tmp_path, monkeypatch, slurm, "")
    for _ in range(3):
        look(ours)
    assert slurm.asked["queue"] == 1


@pytest.mark.parametrize("verb", ["submit", "ended"])
def test_in_the_select_mode_the_gates_loop_is_woken_by_no_job(tmp_path, monkeypatch, verb):
    gates, *_ = loops(tmp_path, monkeypatch, TwoNodes(), "")
    gates.heard(verb)
    assert gates.schedule.due == float("inf")
    gates.heard("reload")
    assert gates.schedule.due < float("inf")


def test_the_status_says_nothing_of_what_is_not_configured(tmp_path, monkeypatch):
    ours = loops(tmp_path, monkeypatch, TwoNodes(), "")
    assert not {"slots", "genie", "remote"} & ours[0].engine.status().keys()


def test_figures_that_three_polls_have_not_renewed_are_not_used(tmp_path, monkeypatch):
    gates, *_ = loops(tmp_path, monkeypatch, Remembering(), "enforcement: slots\n")
    look([gates])
    cache, poll_s = gates.engine.setup.cache, gates.poll_s(gates.engine.setup)
    cache.polled_at = 1000.0
    assert cache.is_fresh(999.0 + 3 * poll_s)
    assert not cache.is_fresh(1000.0 + 3 * poll_s)


def test_where_a_poll_takes_long_its_figures_are_used_for_longer(tmp_path, monkeypatch):
    """Else the submits between two slow polls were Slurm's own for good, and borrowed nothing."""
    ours = loops(tmp_path, monkeypatch, Remembering(), "enforcement: slots\n")
    monkeypatch.setattr("slurm_plugin.serve.loops.gates.monotonic", iter((0.0, 20.0)).__next__)
    look(ours[:1])
    cache = ours[0].engine.setup.cache
    cache.polled_at = 1000.0
    assert cache.is_fresh(1059.0)
    assert not cache.is_fresh(1060.0)


@pytest.mark.parametrize("mode", ["select", "slots"])
def test_a_reconciler_lasts_for_one_configuration_and_one_clock(tmp_path, monkeypatch, mode):
    """A new one closes what the former one has running beside the engine."""
    closed: list[LoanMatcher] = []
    monkeypatch.setattr(LoanMatcher, "close", lambda matcher: closed.append(matcher))
    gates, _, lending, _ = loops(tmp_path, monkeypatch, TwoNodes(), REMOTE + f"enforcement: {mode}")
    ours = gates if mode == "slots" else lending
    assert isinstance(ours, ReconcilerLoop)
    engine = ours.engine
    first = ours.reconciler(engine.setup)
    for verb in ("submit", "ended", "reload"):
        ours.heard(verb)
    assert ours.reconciler(engine.setup) is first
    engine.say(ANEW)
    second = ours.reconciler(engine.setup)
    third = ours.reconciler(replace(engine.setup))
    assert first is not second is not third
    assert [id(one) for one in closed] == [id(first.matcher), id(second.matcher)]


@pytest.mark.parametrize(
    ("plan", "asked"),
    [({"starts": [("job", "update")]}, 1), ({"offers": ["a donor"]}, 1), ({}, 0)]
    + [({what: ["a job"]}, 0) for what in ("refusals", "broken", "splits", "back")],
    ids=str,
)
def test_slurm_is_asked_for_a_pass_where_a_loan_lets_jobs_go(tmp_path, monkeypatch, plan, asked):
    """By itself it would look later; nobody makes it look who asks for a loan in vain."""
    made = StartPlan({}, [], **plan)
    monkeypatch.setattr(LoanReconciler, "reconcile", lambda *_: made)
    *_, lending, _ = loops(tmp_path, monkeypatch, TwoNodes(), REMOTE)
    passes: list[bool] = []
    lending.engine.ask_for_pass = lambda: passes.append(True)
    look([lending])
    assert len(passes) == asked


@pytest.mark.parametrize(
    ("seen", "next_s"), [("loan meets", 0.15), ("placed", 0.3), ("gated", 5.0)]
)
def test_with_slots_the_next_look_comes_soonest_while_donors_get_ready(
    tmp_path, monkeypatch, seen, next_s
):
    """slurmctld looks once a second: a donor seen too late costs a second more."""

    async def planned(*_: object) -> GatePlan:
        return GatePlan({}, [], seen=Counter({seen: 1}))

    monkeypatch.setattr(GateReconciler, "reconcile", planned)
    gates, *_ = loops(tmp_path, monkeypatch, TwoNodes(), REMOTE + "enforcement: slots\n")
    assert asyncio.run(gates.poll(time.monotonic()))[0] == next_s


def test_neighbours_take_what_others_have_read(tmp_path, monkeypatch):
    """Themselves they read only where nobody else has since."""
    slurm = TwoNodes()
    *_, lending, ours = loops(tmp_path, monkeypatch, slurm, REMOTE)
    neighbours, readings = ours.engine.setup.neighbours, []
    neighbours.is_wanted = True
    for one in (lending, ours, ours):
        look([one])
        readings.append(slurm.asked["queue"])
    assert readings == [1, 1, 1]
    neighbours.clock = lambda: time.monotonic() + ours.poll_s(ours.engine.setup)
    look([ours])
    assert slurm.asked["queue"] == 2


@pytest.mark.parametrize(
    ("policy", "took_s", "rest_s"),
    [
        ("horizon", 0.1, 5.0),
        ("horizon", 1.0, 20.0),
        ("horizon", 60.0, 120.0),
        ("topo-aware", 0.1, 5.0),
        ("topo-aware", 60.0, 15.0),
    ],
)
def test_readings_that_take_long_are_rarer(tmp_path, monkeypatch, policy, took_s, rest_s):
    """5 % of the time at most; who goes by neighbours never does without them."""
    *_, ours = loops(tmp_path, monkeypatch, TwoNodes(), "")
    site = an_engine(tmp_path, BASIC.replace("policy: mapa", f"policy: {policy}")).setup
    site.watcher.took_s = took_s
    assert ours.poll_s(site) == pytest.approx(rest_s)


def test_of_neighbours_nothing_is_read_until_a_policy_asks(tmp_path, monkeypatch, caplog):
    """A Slurm that does not answer is told once."""
    slurm = TwoNodes()
    *_, ours = loops(tmp_path, monkeypatch, slurm, "")
    look([ours])
    assert not slurm.asked
    assert not tuple(ours.engine.setup.neighbours.jobs())
    slurm.is_down = True
    for _ in range(2):
        look([ours])
    assert slurm.asked["queue"] == 2
    assert caplog.text.count("neighbours: Slurm could not be read") == 1
    assert ours.engine.setup.neighbours.age_s() is None


def test_while_it_is_switched_off_every_gate_is_opened_of_later_jobs_too(
    tmp_path, monkeypatch, caplog
):
    """The bridge may use an answer of before for a second more. It is said once."""
    slurm = Remembering()
    gates, *_ = loops(tmp_path, monkeypatch, slurm, "enforcement: slots\n")
    gates.engine.setup.config.kill_switch.touch()
    for job_id in (1, 2):
        slurm.jobs_there = [gated(job_id)]
        look([gates])
    given_back = [(names, update.begin_time) for names, update in slurm.updates]
    assert given_back == [(("1",), NOW), (("2",), NOW)]
    assert caplog.text.count("slots: switched off; waiting jobs are given back to Slurm") == 1


# The clock is set while the engine runs: what it kept by it is forgotten, or bounded.


@pytest.mark.parametrize(
    ("step_s", "said"),
    [(HOUR_S, "forward by 3600 s"), (-HOUR_S, "back by 3600 s"), (0.5, "")],
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
    assert told == ([ANEW] if said else [])
    assert [said in record.getMessage() for record in caplog.records] == ([True] if said else [])


async def test_the_clock_is_checked_again_and_again_and_others_get_their_turn(monkeypatch):
    monkeypatch.setattr(run, "CHECK_S", 0.001)
    ahead, told = iter([0.0, 0.0, HOUR_S]), asyncio.Queue[str]()
    checking = asyncio.create_task(ClockWatch(told.put_nowait, lambda: next(ahead)).run())
    assert await told.get() == ANEW
    assert not checking.done()
    checking.cancel()


def test_after_a_step_nothing_is_given_or_kept_until_slurm_was_read_anew(tmp_path):
    """A promise of a moment would else keep its GPUs for an hour."""
    cache = CapacityCache()
    engine = an_engine(tmp_path, f"{BASIC}enforcement: slots\n", cache)
    GatesLoop(engine)
    now = 1e6
    cache.update({}, (), WaitingLine(), now)
    cache.promise("t", Hold({"dgx1": 3}), now)
    engine.say(ANEW)
    assert not cache.promises
    assert not cache.is_fresh(now - HOUR_S)


@pytest.mark.parametrize(
    ("text", "read"), [("", 2), ("report_read_s: 1200\n", 1), ("report_read_s: 0\n", 0)]
)
def test_for_the_report_slurm_is_read_every_ten_minutes_unless_the_site_wants_else(
    tmp_path, monkeypatch, text, read
):
    slurm = TwoNodes()
    ours = loops(tmp_path, monkeypatch, slurm, text)
    site, engine = SiteLoop(ours[0].engine), ours[0].engine
    clock = [100.0]
    engine.setup.watcher.clock = lambda: clock[0]
    for clock[0] in (100.0, 99 + SETTLED_S, 100 + SETTLED_S, 699 + SETTLED_S, 700 + SETTLED_S):
        look([site])
    assert slurm.asked["nodes"] == read
    rows = FreeHistory(engine.setup.config.decision_log).since(None)
    assert len(rows) == read
    assert {(row.gpus, row.free, row.stranded, row.nodes, row.per_node) for row in rows} == (
        {(16, 16, 0, 2, 8)} if read else set()
    )


def test_after_a_reload_readings_go_beside_the_decision_log_that_is_named_then(
    tmp_path, monkeypatch
):
    ours = loops(tmp_path, monkeypatch, TwoNodes(), "")
    site, engine = SiteLoop(ours[0].engine), ours[0].engine
    engine.listen(site.heard, dict)
    clock = [0.0]
    engine.setup.watcher.clock = lambda: clock[0]
    logs = [engine.setup.config.decision_log]
    logs.append(replace(logs[0], path=tmp_path / "other.jsonl"))
    for log, clock[0] in zip(logs, (SETTLED_S, SETTLED_S + 600), strict=True):
        engine.setup = replace(engine.setup, config=replace(engine.setup.config, decision_log=log))
        engine.say("reload")
        site._due = clock[0]
        look([site])
    assert [len(FreeHistory(log).since(None)) for log in logs] == [1, 1]


def test_a_reload_while_a_reading_is_noted_ends_no_loop(tmp_path, monkeypatch):
    ours = loops(tmp_path, monkeypatch, TwoNodes(), "")
    site, engine = SiteLoop(ours[0].engine), ours[0].engine
    engine.setup.watcher.clock = lambda: SETTLED_S
    site._due = SETTLED_S

    def and_a_reload(snapshot):
        site.heard("reload")
        return figures_of(snapshot)

    monkeypatch.setattr("slurm_plugin.serve.loops.site.figures_of", and_a_reload)
    look([site])
    assert len(FreeHistory(engine.setup.config.decision_log).since(None)) == 1
    assert site._history is None


def test_a_reading_that_fails_is_not_in_the_report(tmp_path, monkeypatch, caplog):
    slurm = TwoNodes()
    ours = loops(tmp_path, monkeypatch, slurm, "")
    site, engine = SiteLoop(ours[0].engine), ours[0].engine
    clock = [0.0]
    engine.setup.watcher.clock = lambda: clock[0]
    look([site])

    def gone():
        raise SlurmError("slurmctld is down")

    monkeypatch.setattr(slurm, "nodes", gone)
    clock[0] = SETTLED_S
    look([site])
    assert "site: Slurm could not be read: slurmctld is down" in caplog.text
    assert FreeHistory(engine.setup.config.decision_log).since(None) == []


class Moving(TwoNodes):
    """A Slurm whose topology is what `shown` says; it does not answer where that is nothing."""

    shown = ""

    def networks(self) -> Networks:
        self.asked["networks"] += 1
        if not self.shown:
            raise SlurmError("no answer")
        only = topology_shown.parse(self.shown, "scontrol show topology")
        return Networks({"": only}, only)


def test_slurmctlds_topology_counts_once_it_is_told_and_while_it_is_away(tmp_path, monkeypatch):
    (tmp_path / "topology.conf").write_text("SwitchName=s1 Nodes=dgx[1-2]\n")
    slurm = Moving()
    [gates, *_] = loops(tmp_path, monkeypatch, slurm, "topology_conf: topology.conf\n")
    loop, networks = NetworkLoop(gates.engine), gates.engine.setup.decider.networks

    def known() -> tuple[set[str], str]:
        look([loop])
        network = networks.of("")
        assert isinstance(network, Network)
        [told] = loop.status()["network"]["topologies"].values()
        assert told["from"] == network.source
        return set(network.domains[0].nodes), network.source

    file = {"dgx1", "dgx2"}, str(tmp_path / "topology.conf")
    assert known() == file
    slurm.shown = "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=dgx1\n"
    told = {"dgx1"}, "scontrol show topology"
    assert known() == told
    slurm.shown = ""
    assert known() == told
    assert loop.poll_s(loop.engine.setup) == POLL_S
    # A new configuration begins with its file.
    gates.engine.setup.decider.networks.told = None
    assert known() == file


def test_where_the_site_names_no_network_slurm_is_not_asked_for_one(tmp_path, monkeypatch):
    slurm = Moving()
    [gates, *_] = loops(tmp_path, monkeypatch, slurm, "")
    loop = NetworkLoop(gates.engine)
    look([loop])
    assert not slurm.asked["networks"]
    assert loop.status() == {}
    assert loop.poll_s(loop.engine.setup) == IDLE_S


class Coming(TwoNodes):
    """A Slurm with dynamic nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.there = ["pod1"]

    def nodes(self):
        rows = [replace(a_node(name), features=("v100",)) for name in self.there]
        return [*super().nodes(), *rows]


@pytest.fixture
def coming(tmp_path, monkeypatch):
    """Its loop of nodes, with a clock to be set, and what slurmctld's plugin told of them."""
    slurm, now = Coming(), [1000.0]
    rule = "  - {{features: v100, topology: dgx1v}}\n"
    text = BASIC.replace("partitions:\n", rule + "partitions:\n")
    monkeypatch.setattr(setup.choose, "client", lambda _: slurm)
    monkeypatch.setattr("slurm_plugin.serve.loops.nodes.monotonic", lambda: now[0])
    engine = an_engine(tmp_path, text)
    return NodesLoop(engine), slurm, now


def told_of(loop: NodesLoop, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """slurmctld's plugin told its nodes."""
    gpus = [8] * len(names)
    told = ToldNodes([*names], gpus, [255] * len(names), [1] * len(names), ["v100"] * len(names))
    kept = KeptNodes(told, loop.engine.setup.machines)
    monkeypatch.setattr(KeptTables, "latest", property(lambda self: kept))


def test_a_node_that_comes_is_known_and_one_that_goes_is_given_up(coming, monkeypatch):
    loop, slurm, now = coming
    look([loop])
    assert "pod1" in loop.engine.setup.machines
    assert loop.status() == {"nodes_by_feature": {"v100": 1}}
    slurm.there = ["pod2"]
    now[0] += UNTOLD_S - 1
    look([loop])
    assert "pod2" not in loop.engine.setup.machines
    now[0] += 1
    look([loop])
    machines = loop.engine.setup.machines
    assert ("pod1" in machines, "pod2" in machines) == (False, True)


def test_what_the_plugin_tells_has_slurm_asked_at_once_and_else_seldom(coming, monkeypatch):
    loop, slurm, now = coming
    told_of(loop, monkeypatch, "dgx1", "pod1")
    look([loop])
    asked = slurm.asked["nodes"]
    now[0] += TOLD_S - 1
    look([loop])
    assert slurm.asked["nodes"] == asked
    slurm.there.append("pod2")
    told_of(loop, monkeypatch, "dgx1", "pod1", "pod2")
    look([loop])
    assert "pod2" in loop.engine.setup.machines
    # Those that come one by one are taken together.
    slurm.there.append("pod3")
    told_of(loop, monkeypatch, "dgx1", "pod1", "pod2", "pod3")
    look([loop])
    assert "pod3" not in loop.engine.setup.machines
    now[0] += 2 * GATHER_S
    look([loop])
    assert "pod3" in loop.engine.setup.machines


def test_a_folder_that_cannot_be_written_is_said_once(coming, monkeypatch, caplog):
    loop, _, now = coming

    def full(*_: object) -> bool:
        raise PluginError("no space left")

    monkeypatch.setattr(by_feature, "keep", full)
    for _ in range(3):
        look([loop])
        now[0] += UNTOLD_S
    assert caplog.text.count("no space left") == 1
    assert "pod1" not in loop.engine.setup.machines


def test_where_no_node_is_declared_by_features_slurm_is_not_asked(tmp_path, monkeypatch):
    slurm = Coming()
    [gates, *_] = loops(tmp_path, monkeypatch, slurm, "")
    loop = NodesLoop(gates.engine)
    look([loop])
    assert not slurm.asked["nodes"]
    assert loop.status() == {}


def test_a_site_reload_meanwhile_is_not_undone(coming):
    """Slurm answers late; before it does the site reloads another configuration."""
    loop, slurm, _ = coming
    engine, path = loop.engine, loop.engine.setup.config.path

    def late():
        text = path.read_text() + "deadline_ms: 77\n"
        path.write_text(text)
        assert asyncio.run(engine.reload()) is None
        slurm.nodes = type(slurm).nodes.__get__(slurm)
        return slurm.nodes()

    slurm.nodes = late
    look([loop])
    assert engine.setup.config.deadline_ms == 77
    look([loop])
    assert "pod1" in engine.setup.machines


def test_what_another_engine_found_and_what_failed_to_load_come_into_force(coming):
    loop, _, now = coming
    state_dir = loop.engine.setup.config.state_dir
    by_feature.keep(state_dir, {"v100": ("pod1",)})
    load, fails = loop.engine._load, [PluginError("half written")]

    def sometimes(*args, **more):
        if fails:
            raise fails.pop()
        return load(*args, **more)

    loop.engine._load = sometimes
    look([loop])
    assert "pod1" not in loop.engine.setup.machines
    now[0] += UNTOLD_S
    look([loop])
    assert "pod1" in loop.engine.setup.machines


def test_a_slurm_that_fails_or_shows_nothing_is_asked_seldom_and_takes_nothing_away(coming):
    loop, slurm, now = coming
    look([loop])
    shown = slurm.nodes

    def failing():
        now[0] += 10
        asked.append(now[0])
        raise SlurmError("timed out")

    asked: list[float] = []
    slurm.nodes = failing
    began = now[0]
    while now[0] < began + 3000:
        look([loop])
        now[0] += 2
    assert len(asked) <= 3000 / 500 + 2
    slurm.nodes = lambda: []
    now[0] += 1000
    look([loop])
    assert "pod1" in loop.engine.setup.machines
    slurm.nodes = shown


def test_nodes_that_come_and_go_all_the_time_are_taken_together(coming):
    loop, slurm, now = coming
    reloads = []
    load = loop.engine._load
    loop.engine._load = lambda *args, **more: (reloads.append(now[0]), load(*args, **more))[1]
    for step in range(300):
        slurm.there = [f"pod{step}"]
        look([loop])
        now[0] += 2
    assert len(reloads) <= 600 / 10
