"""The cache of running jobs: notices at once, readings mend it, old ones are not used."""

from dataclasses import replace
from pathlib import Path

import pytest
from engine_in_tests import written
from machines_in_tests import BASIC, basic_config, basic_decider, mask, node, question

from policies import LooksAt, Request
from policies.contract.interference import WORST, Kind, kind_of_request
from slurm_plugin.base.job_notes.hints import hint_of
from slurm_plugin.base.protocol import Notice, WaitFor
from slurm_plugin.decide.decide import Decider
from slurm_plugin.decide.learning import Teacher
from slurm_plugin.decide.load_machines import load_machines
from slurm_plugin.decide.neighbours import Neighbours
from slurm_plugin.errors import SlurmError
from slurm_plugin.learn.job_profiles import Learned, interference
from slurm_plugin.learn.job_profiles.learned import Sort
from slurm_plugin.queue.coming import Coming
from slurm_plugin.serve import setup
from slurm_plugin.slurm.interface import QueuedJob, SlurmJob

HINT = "policy=topo-aware-p,profile=bert,batch=4"
ALICE, MALLORY = 1000, 1002
BERT, VGG = Kind("bert", 4, 2, ALICE), Kind("vgg", 4, 1, ALICE)


class Slurm:
    """A client that tells what it is told, or that Slurm is down."""

    def __init__(self) -> None:
        self.rows: list[QueuedJob] = []
        self.finished: list[SlurmJob] = []
        self.is_down = False
        self.during = lambda: None

    def queue(self) -> list[QueuedJob]:
        if self.is_down:
            raise SlurmError("squeue: slurmctld does not answer")
        told = list(self.rows)
        self.during()
        return told

    def jobs(self) -> list[SlurmJob]:
        return self.finished


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def row(job_id: int, gpus: dict[str, tuple[int, ...]], hint: str = HINT) -> QueuedJob:
    comment = f"site text [gpu-topo: {hint} | dgx1:0 by mapa: because]" if hint else ""
    return QueuedJob(job_id, state="RUNNING", gpus=gpus, admin_comment=comment, uid=ALICE)


def started(job_id: int, **masks: int) -> Notice:
    return Notice("started", job_id, 0, masks)


@pytest.fixture
def slurm() -> Slurm:
    return Slurm()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cache(slurm: Slurm, clock: Clock, tmp_path: Path) -> Neighbours:
    machines = load_machines(basic_config(tmp_path))
    teacher = Teacher(Learned(tmp_path / "learned.json"), machines, clock=clock)
    found = Neighbours(machines, 30.0, teacher, Coming(), clock)
    assert not found.jobs()  # somebody asks from now on
    refresh(found, slurm)
    return found


def refresh(cache: Neighbours, slurm: Slurm) -> None:
    """A snapshot is read and taken."""
    began = cache.clock()
    cache.take(cache.running_in(slurm.queue()), began)
    cache.teacher.learn(slurm)


def test_a_reading_says_who_runs_where_in_the_topologys_indices(cache, slurm):
    slurm.rows = [row(3, {"mirrored": (7, 6)})]
    refresh(cache, slurm)
    (job,) = cache.jobs()
    assert (job.job_id, job.profile, job.batch) == (3, "bert", 4)
    assert job.gpus == {"mirrored": mask(0, 1)}


def test_a_notice_is_known_at_once_with_the_hint_of_the_question(cache):
    cache.asked(question(node("dgx1", 0xFF, 1), job=5, hint=HINT))
    cache.notice(started(5, dgx1=mask(0, 3)))
    (job,) = cache.jobs()
    assert (job.gpus, job.profile) == ({"dgx1": mask(0, 3)}, "bert")
    cache.notice(Notice("ended", 5, 0, {}))
    assert not cache.jobs()


def test_a_job_of_shares_is_a_neighbour_of_such_jobs_alone(cache, slurm, clock):
    cache.asked(question(node("dgx1", 0xFF, 1), job=5, hint=HINT))
    cache.notice(Notice("started", 5, 0, {"dgx1": mask(3)}, shared=True))
    (job,) = cache.sharing("dgx1")
    assert (job.gpus, job.profile) == ({"dgx1": mask(3)}, "bert")
    assert (list(cache.jobs()), list(cache.sharing("dgx2"))) == ([], [])
    slurm.rows = [replace(row(6, {}), shared_gpus={"dgx2": (1,)}), row(7, {"dgx1": (0,)})]
    clock.now += 5
    refresh(cache, slurm)
    assert [job.job_id for job in cache.sharing("dgx2")] == [6]
    assert [job.job_id for job in cache.jobs()] == [7]
    assert not cache.sharing("dgx1")
    cache.notice(Notice("ended", 6, 0, {}))
    assert not cache.sharing("dgx2")
    clock.now += 31
    cache.notice(Notice("started", 8, 0, {"dgx1": 1}, shared=True))
    assert not cache.sharing("dgx1")


def test_a_missed_end_is_mended_by_the_next_reading(cache, slurm):
    cache.notice(started(5, dgx1=1))
    slurm.rows = [row(6, {"dgx2": (1,)})]
    cache.clock.now += 5
    refresh(cache, slurm)
    assert [job.job_id for job in cache.jobs()] == [6]


def test_what_is_told_while_slurm_is_asked_is_newer_than_its_answer(cache, slurm):
    slurm.rows = [row(6, {"dgx2": (1,)})]

    def meanwhile() -> None:
        cache.notice(started(7, dgx1=1))
        cache.notice(Notice("ended", 6, 0, {}))

    slurm.during = meanwhile
    refresh(cache, slurm)
    assert [job.job_id for job in cache.jobs()] == [7]


def test_a_job_that_is_as_it_was_stays_the_same_object(cache, slurm):
    slurm.rows = [row(6, {"dgx2": (1,)})]
    refresh(cache, slurm)
    before = cache.jobs()
    refresh(cache, slurm)
    assert next(iter(cache.jobs())) is next(iter(before))


def test_nothing_older_than_the_bound_is_used(cache, slurm, clock):
    """30 s here. Slurm being down keeps the cache as it was, and the bound empties it."""
    slurm.rows = [row(6, {"dgx2": (1,)})]
    refresh(cache, slurm)
    slurm.is_down = True
    clock.now += 29
    with pytest.raises(SlurmError):
        refresh(cache, slurm)
    assert len(cache.jobs()) == 1
    clock.now += 2
    assert not cache.jobs()
    slurm.is_down = False
    refresh(cache, slurm)
    assert len(cache.jobs()) == 1


def test_before_the_first_reading_nobody_is_known(tmp_path, slurm):
    machines = load_machines(basic_config(tmp_path))
    teacher = Teacher(Learned(tmp_path / "learned.json"), machines)
    fresh = Neighbours(machines, 30.0, teacher, Coming())
    fresh.notice(started(6, dgx1=2))  # nobody has asked yet
    assert not fresh.jobs()
    fresh.notice(started(7, dgx1=1))
    assert not fresh.jobs()
    assert fresh.status() == {"jobs": 1, "age_s": None, "communication": None}


@pytest.mark.parametrize(
    ("policy", "is_followed", "is_read"),
    [("topo-aware", True, True), ("horizon", True, False), ("mapa", False, False)],
)
def test_only_who_looks_at_those_that_run_has_the_first_answer_wait_for_the_queue(
    tmp_path, monkeypatch, slurm, policy, is_followed, is_read
):
    monkeypatch.setattr(setup.choose, "client", lambda _: slurm)
    site = setup.load(written(tmp_path, BASIC.replace("policy: mapa", f"policy: {policy}")))
    assert site.neighbours.is_wanted == is_followed
    assert (site.neighbours.age_s() is not None) == is_read


def test_a_hint_comes_from_our_bracket_else_from_the_comment():
    assert hint_of(row(1, {}).admin_comment, "gpu-topo: batch=4") == HINT
    assert hint_of("", "gpu-topo: batch=4") == "batch=4"
    assert hint_of("", "my job") == ""


@pytest.mark.parametrize("hint", ["", "off", "nonsense", "batch=x", "policy=gone,batch=4"])
def test_a_neighbour_without_a_sound_hint_still_counts(cache, slurm, hint):
    slurm.rows = [row(6, {"dgx2": (1,)}, hint)]
    refresh(cache, slurm)
    (job,) = cache.jobs()
    assert (job.profile, job.batch) == (None, None)


def test_a_node_that_is_left_to_slurm_has_no_neighbours(cache, slurm):
    slurm.rows = [row(6, {"elsewhere": (1,), "dgx2": (1,)})]
    refresh(cache, slurm)
    assert next(iter(cache.jobs())).gpus == {"dgx2": 2}


# Decisions.


def decider(tmp_path: Path, cache: Neighbours) -> Decider:
    return replace(basic_decider(tmp_path), neighbours=cache.jobs)


def test_topo_aware_keeps_away_from_a_neighbour_and_mapa_does_not_ask(cache, slurm, tmp_path):
    slurm.rows = [row(6, {"minsky1": (0,)})]
    refresh(cache, slurm)
    asked = question(node("minsky1", mask(1, 2, 3), mask(1), total=4), job=9)
    ours = decider(tmp_path, cache)
    away = ours.decide(replace(asked, hint="policy=topo-aware,batch=1")).reply
    beside = ours.decide(replace(asked, hint="policy=mapa")).reply
    assert (away.nodes, beside.nodes) == ({"minsky1": mask(2)}, {"minsky1": mask(1)})


def test_topo_aware_p_waits_with_its_terms_in_the_note(cache, slurm, tmp_path):
    slurm.rows = [row(6, {"minsky1": (0,)}), row(7, {"minsky1": (2,)})]
    refresh(cache, slurm)
    asked = question(node("minsky1", mask(1, 3), mask(1, 3), total=4), job=9)
    hint = "policy=topo-aware-p,min-utility=0.5,batch=1"
    reply = decider(tmp_path, cache).decide(replace(asked, hint=hint)).reply
    assert isinstance(reply, WaitFor)
    assert reply.note.startswith("topo-aware-p: the best free GPUs have a utility of 0.09 (comm")


def test_a_site_sets_weights_and_profiles_and_slurm_need_not_be_there(tmp_path):
    """A whole configuration; Slurm is not there, which costs a line in the log and no start."""
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    (profiles / "bert.yaml").write_text(
        "profile: bert\nbeside: [{gpus: 1, other: bert, other_gpus: 1, slowdown: 1.3}]\n"
    )
    text = (
        BASIC + "topo_aware: {{interference: 2, fragmentation: 0, profiles: {folder}/profiles}}\n"
    )
    text += "slurm: {{bin_dir: /nowhere}}\n"
    text = text.replace("plain: {{policy: first-fit}}", "plain: {{policy: topo-aware}}")
    found = setup.load(written(tmp_path, text))
    assert found.looks_at(LooksAt.RUNNING_JOBS)
    assert found.neighbours.age_s() is None
    asked = question(
        node("minsky1", mask(1, 2, 3), mask(1), total=4), partition="plain", hint="profile=bert"
    )
    record = found.enforcement.on_place(asked).record()
    assert record.chosen.score == 1.0  # no weight on fragmentation


# Learning.


def begin(cache: Neighbours, job_id: int, gpus: int, hint: str, uid: int = ALICE) -> None:
    """A job starts on these GPUs of dgx1."""
    cache.asked(question(node("dgx1", 0xFF, 1), job=job_id, hint=hint, uid=uid))
    cache.notice(started(job_id, dgx1=gpus))


def life(
    cache: Neighbours, job_id: int, gpus: int, seconds: float, hint: str, uid: int = ALICE
) -> None:
    begin(cache, job_id, gpus, hint, uid)
    cache.clock.now += seconds
    cache.notice(Notice("ended", job_id, 0, {}))


def completed(*ids: int, state: str = "COMPLETED") -> list[SlurmJob]:
    return [SlurmJob(job_id, "", state) for job_id in ids]


def test_runs_alone_and_beside_one_job_teach_its_slowdown(cache, slurm):
    """Five runs each, the 95th percentile of 100..104 s over that of 80..84 s; policies hear it."""
    told: list[object] = []
    cache.teacher.on_learned = lambda: told.append(cache.teacher.learned.slowdowns())
    for n in range(5):
        life(cache, 10 + n, mask(0, 1), 80 + n, HINT)
    begin(cache, 50, mask(2), "policy=topo-aware,profile=vgg,batch=4")
    for n in range(5):
        life(cache, 20 + n, mask(0, 1), 100 + n, HINT)
    slurm.rows = [row(50, {"dgx1": (2,)})]
    slurm.finished = completed(*range(10, 15), *range(20, 25))
    refresh(cache, slurm)
    learned = cache.teacher.learned
    assert learned.seconds(Sort(BERT, True)) == 84
    assert learned.seconds(Sort(BERT, True, VGG)) == 104
    assert learned.slowdowns() == {(BERT, VGG): pytest.approx(104 / 84)}
    assert told == [learned.slowdowns()]


@pytest.mark.parametrize(
    ("sentence", "state", "hint", "neighbours"),
    [
        ("a failed job", "FAILED", HINT, 0),
        ("a job that does not say what it is", "COMPLETED", "policy=topo-aware,batch=4", 0),
        ("a job beside two others", "COMPLETED", HINT, 2),
    ],
)
def test_what_teaches_nothing(cache, slurm, sentence, state, hint, neighbours):
    for n in range(neighbours):
        begin(cache, 50 + n, mask(2 + n), f"policy=topo-aware,profile=p{n},batch=4")
    for n in range(6):
        life(cache, 10 + n, mask(0, 1), 80, hint)
    slurm.finished = completed(*range(10, 16), state=state)
    refresh(cache, slurm)
    assert cache.teacher.learned.slowdowns() == {}
    assert all(
        cache.teacher.learned.seconds(Sort(BERT, True, other)) is None for other in (None, VGG)
    )


def test_a_neighbour_of_the_other_socket_is_none(cache, slurm):
    cache.notice(started(50, dgx1=mask(4)))
    for n in range(5):
        life(cache, 10 + n, mask(0, 1), 80, HINT)
    slurm.finished = completed(*range(10, 15))
    refresh(cache, slurm)
    assert cache.teacher.learned.seconds(Sort(BERT, True)) == 80


def test_what_was_learned_outlives_the_engine(cache, slurm, tmp_path):
    for n in range(5):
        life(cache, 10 + n, mask(0, 4), 80, HINT)
    slurm.finished = completed(*range(10, 15))
    refresh(cache, slurm)
    again = Learned(tmp_path / "learned.json")
    assert again.seconds(Sort(BERT, False)) == 80


def test_what_a_user_calls_his_jobs_moves_no_placement_of_others(cache, slurm):
    """Mallory's `bert` idles beside hers; Alice's own jobs of that name are judged as before."""
    for n in range(5):
        life(cache, 10 + n, mask(0, 1), 10, HINT, MALLORY)
    vgg = "policy=topo-aware,profile=vgg,batch=4"
    begin(cache, 50, mask(2), vgg, MALLORY)
    for n in range(5):
        life(cache, 20 + n, mask(0, 1), 1000, HINT, MALLORY)
    slurm.rows = [row(50, {"dgx1": (2,)}, vgg)]
    slurm.finished = completed(*range(10, 15), *range(20, 25))
    refresh(cache, slurm)
    learned = cache.teacher.learned
    theirs = BERT._replace(user=MALLORY), VGG._replace(user=MALLORY)
    assert learned.slowdowns() == {theirs: 100}
    known = interference(learned.slowdowns())
    request = Request((2,), options={"profile": "bert", "batch": "4"}, user=ALICE)
    hers = known.told_apart(kind_of_request(request))
    assert hers == Kind("", 16, 0)
    assert known.factor(hers, known.told_apart(VGG)) == known.factor(hers, Kind("", 16, 0))
    his = known.told_apart(kind_of_request(replace(request, user=MALLORY)))
    assert known.factor(his, theirs[1]) == WORST
