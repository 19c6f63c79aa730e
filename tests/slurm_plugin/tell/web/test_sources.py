"""What is followed and summed up: the decision log, the gains, the reasons of many jobs."""

import json

import pytest
from machines_in_tests import basic_config
from web_in_tests import ALICE, BOB, ENGINE, NOW, RECORD, job, node, played

from gres_topology.slurm_files import topology_conf
from slurm_plugin.base.log_lines import of_plain
from slurm_plugin.config.sections import DecisionLogConfig
from slurm_plugin.learn.part_marks.marks import Mark, change, path_in
from slurm_plugin.queue.snapshot import Detail, Settings, Snapshot
from slurm_plugin.slurm.clients import scontrol_tables
from slurm_plugin.slurm.interface import Reservation, SlurmPartition
from slurm_plugin.tell.explain.gains import Gains
from slurm_plugin.tell.web import decisions
from slurm_plugin.tell.web.decisions import DecisionTail
from slurm_plugin.tell.web.gain import GainBook
from slurm_plugin.tell.web.reasons import Reasons
from slurm_plugin.tell.web.sources import MachinesInForce
from slurm_plugin.tell.web.view import cluster_of, common_view
from slurm_plugin.tell.why.reading import ExtrasReader, Reading
from slurm_plugin.tell.why.state import Extras


def line(number: int, **more: object) -> str:
    return json.dumps({**RECORD, "job": number, **more}) + "\n"


def jobs_shown(tail: DecisionTail) -> list[int]:
    return [decision.job for _, decision in tail.shown]


def test_the_log_is_followed_line_by_line(tmp_path):
    path = tmp_path / "log"
    tail = DecisionTail(DecisionLogConfig(path, 1, 1))
    assert not tail.read()
    path.write_text(line(1) + line(2)[:40])
    tail.read()
    assert jobs_shown(tail) == [1]
    with path.open("a") as log:
        log.write(line(2)[40:] + "no json\n" + line(3))
    tail.read()
    assert jobs_shown(tail) == [1, 2, 3]
    # Rotated: a new file of the same name.
    path.rename(tmp_path / "log.1")
    path.write_text(line(4))
    tail.read()
    assert jobs_shown(tail) == [1, 2, 3, 4]


def test_nothing_is_missed_that_was_written_just_before_the_log_was_rotated(tmp_path):
    path = tmp_path / "log"
    path.write_text(line(1))
    tail = DecisionTail(DecisionLogConfig(path, 1, 1))
    tail.read()
    with path.open("a") as log:
        log.write(line(2))
    path.rename(tmp_path / "log.1")
    path.write_text(line(3))
    assert tail.read()
    assert jobs_shown(tail) == [1, 2, 3]


def test_a_log_that_was_emptied_and_filled_again_is_read_anew(tmp_path):
    path = tmp_path / "log"
    path.write_text(line(1))
    tail = DecisionTail(DecisionLogConfig(path, 1, 1))
    tail.read()
    path.write_text(line(4, time="2026-11-22T03:19:43.918+00:00") + line(5))
    tail.read()
    assert jobs_shown(tail) == [1, 4, 5]
    assert not tail.left_out


def test_of_a_long_log_the_end_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(decisions, "MAX_BYTES", 5000)
    path = tmp_path / "log"
    path.write_text("".join(line(number) for number in range(1, 101)))
    tail = DecisionTail(DecisionLogConfig(path, 1, 1))
    tail.read()
    shown = jobs_shown(tail)
    assert shown == list(range(shown[0], 101))
    assert 0 < len(shown) < 20
    with path.open("a") as log:
        log.write(line(101))
    tail.read()
    assert jobs_shown(tail)[-1] == 101


def test_nodes_are_drawn_with_the_marks_of_the_moment(tmp_path):
    config = basic_config(tmp_path)
    machines, path = MachinesInForce(config), path_in(config.state_dir)
    whole = machines["dgx1"].topology
    change(path, lambda mark: False, [Mark("dgx1", "gpu 3", "broken")])
    assert machines["dgx1"].topology.broken == 1 << 3
    assert set(machines) >= {"dgx1"}
    path.write_text("{}")
    assert machines["dgx1"].topology.broken == 1 << 3, "a damaged file changes nothing"
    path.write_text("")
    assert machines["dgx1"].topology == whole


def test_a_start_belongs_to_the_user_of_its_decision(tmp_path):
    tail = DecisionTail(None)
    tail.take(map(of_plain, [RECORD, {"job": 7, "decision": "started", "gpus": {"dgx1": [0, 3]}}]))
    assert [decision.uid for _, decision in tail.shown] == [BOB, BOB]


def test_a_log_that_is_closed_to_this_user_is_told(tmp_path):
    tail = DecisionTail(DecisionLogConfig(tmp_path, 1, 1))
    assert not tail.read()
    assert tail.problem == f"{tmp_path}: expected a plain file"


def test_gains_are_those_of_the_report():
    records = [
        {**RECORD, "job": number, "uid": uid, "gpus_per_node": [count], "time": time}
        for number, uid, count, time in [
            (1, ALICE, 2, "2026-11-20T10:00:00+00:00"),
            (2, BOB, 2, "2026-11-23T10:00:00+00:00"),
            (3, BOB, 4, "2026-11-23T11:00:00+00:00"),
        ]
    ]
    told = Gains()
    for record in records:
        told.add(of_plain(record))
    book = GainBook(lambda: map(of_plain, records))
    book.read()
    found = book.summary(None)
    assert found["all"] == told.summary()["placed"]
    assert [(row["name"], row["jobs"]) for row in found["week"]] == [
        ("2026-W47", 1),
        ("2026-W48", 2),
    ]
    assert [(row["name"], row["jobs"]) for row in found["size"]] == [("2", 2), ("4", 1)]
    assert found["days"] == ["2026-11-20", "2026-11-23"]
    assert 0 <= found["ago_s"] < 60
    own = book.summary(BOB)
    assert own["days"] == ["2026-11-23", "2026-11-23"]
    assert (own["all"]["jobs"], [row["name"] for row in own["week"]]) == (2, ["2026-W48"])


def snapshot(jobs, nodes=None, **more) -> Snapshot:
    nodes = nodes or played().nodes_
    part = SlurmPartition("gpu", tuple(one.name for one in nodes), True)
    return Snapshot(0.0, NOW, tuple(jobs), Detail.SETTINGS, tuple(nodes), Settings((part,), **more))


def test_a_long_queue_is_looked_at_bit_by_bit():
    """Jobs without a sentence first; each gets one, however little time there is."""
    jobs = [job(number, ALICE, tres_per_node="gres/gpu:8") for number in range(1, 30)]
    reading, reasons, rounds = Reading(snapshot(jobs)), Reasons(None), 0
    while len(reasons.said) < len(jobs):
        before = len(reasons.said)
        assert reasons.look(reading, budget_s=0.0)
        assert len(reasons.said) == before + 1
        rounds += 1
    assert rounds == len(jobs)
    assert not reasons.look(reading, budget_s=10.0)
    assert {reason.cause for reason in reasons.said.values()} == {"fragmentation"}


def test_jobs_that_are_gone_have_no_reason_any_more():
    reasons = Reasons(ALICE)
    reasons.look(Reading(snapshot([job(1, ALICE), job(2, BOB)])))
    assert set(reasons.said) == {1}
    reasons.look(Reading(snapshot([])))
    assert not reasons.said


RESERVATIONS = "scontrol --oneliner show reservations"


class Counting:
    """Slurm's commands, which say nothing; counts them."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, argv, stdin="", timeout_s=None):
        self.asked.append(" ".join(argv[:4]))
        return ""


@pytest.mark.parametrize(
    ("waits", "asked"),
    [
        ({"reason": "Resources"}, []),
        ({"reason": "Dependency", "dependency": "afterok:9(unfulfilled)"}, []),
        ({"reason": "AssocGrpGRES"}, ["limits"]),
        ({"reason": "MaxMemPerLimit"}, ["limits"]),
        ({"reason": "None"}, ["limits"]),
        ({"reason": "BeginTime", "admin_comment": "[gpu-slots: gated tries=1]"}, ["limits"]),
        ({"reason": "Resources", "licenses": "matlab:1"}, ["licenses"]),
    ],
    ids=str,
)
def test_slurm_is_asked_no_more_than_the_waiting_jobs_need(waits, asked):
    """And as soon as one needs it, whatever was asked for others a moment ago."""
    run = Counting()
    extras = ExtrasReader(run)
    gpus = job(1, ALICE, reason="Resources")
    extras(snapshot([gpus]))
    assert run.asked == [RESERVATIONS]
    jobs = snapshot([gpus, job(2, ALICE, **waits)])
    words = {
        "limits": "scontrol show assoc_mgr flags=assoc,qos",
        "licenses": "scontrol --oneliner show licenses",
    }
    for _ in range(2):
        extras(jobs)
        assert {*run.asked} == {RESERVATIONS, *map(words.get, asked)}
    assert run.asked.count(RESERVATIONS) == 1 + len(asked)


def test_an_empty_queue_asks_nothing():
    run = Counting()
    assert ExtrasReader(run)(snapshot([])) == Extras()
    assert run.asked == []


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("SwitchName=s2 Level=0 LinkSpeed=1 Nodes=dgx1", ["s2"]),
        ("no word of a network", ["s1"]),
        (None, ["s1"]),
    ],
)
def test_a_nodes_switches_are_those_in_force_else_those_of_the_file(told, shown):
    in_force = told and scontrol_tables.networks(lambda argv: told, ())
    reading = Reading(snapshot([], [node("dgx1")], networks=in_force))
    file = topology_conf.parse("SwitchName=s1 Nodes=dgx1\n", "topology.conf")
    found = common_view(reading, cluster_of(reading), ENGINE, file)
    assert found["nodes"]["dgx1"]["switches"] == shown


def test_closed_nodes_have_nothing_free():
    nodes = [node("dgx1", state=("IDLE", "DRAIN")), node("dgx2"), node("dgx3")]
    now, later = (
        Reservation(f"r{at}", int(NOW) + at, int(NOW) + at + 60, (name,))
        for at, name in ((-5, "dgx2"), (600, "dgx3"))
    )
    reading = Reading(snapshot([], nodes), Extras(reservations=(now, later)))
    found = common_view(reading, cluster_of(reading), ENGINE, None)
    assert [one["gpus"] for one in found["nodes"].values()] == ["x" * 8, "x" * 8, "f" * 8]
    assert found["nodes"]["dgx1"]["closed"] == "drained"
    assert (found["figures"]["free"], found["figures"]["gpus"]) == (8, 24)
