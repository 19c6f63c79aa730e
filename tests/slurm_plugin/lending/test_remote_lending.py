"""Loans: who lends, what stands in Slurm, what becomes of donors and borrowers."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from machines_in_tests import BASIC, basic_config

from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.decide.preferences import HintRefused, read_preferences
from slurm_plugin.decide.rules import Rules
from slurm_plugin.errors import SlurmError
from slurm_plugin.gates.plan import Choice, Chosen, GateContext, GatePlan, Want
from slurm_plugin.gates.planning import plan
from slurm_plugin.gates.slot_loans import SlotLoans
from slurm_plugin.gates.want import Wants
from slurm_plugin.job_notes.loan import Loan, LoanDonor
from slurm_plugin.job_notes.records import GateRecord
from slurm_plugin.lending import matcher
from slurm_plugin.lending.acting.question import Question
from slurm_plugin.lending.choice.offer import Offer, Refusal, holds_of, offer
from slurm_plugin.lending.donors import SlurmLoans
from slurm_plugin.lending.matcher import may_borrow
from slurm_plugin.lending.plan import Candidate, LoanContext
from slurm_plugin.lending.standing import Standing, standing
from slurm_plugin.queue.candidates import Group, Need
from slurm_plugin.queue.capacity import Hold, Node, emptied
from slurm_plugin.queue.demand import Demand
from slurm_plugin.remote import presets
from slurm_plugin.remote.node import join
from slurm_plugin.slurm.interface import NOW, JobUpdate, QueuedJob

V100 = tuple(f"v100.s{i}" for i in range(8))
P100 = tuple(f"p100.s{i}" for i in range(4))
SETTINGS = RemoteConfig(presets.load("echo"), allow=True)
LOAN = Loan("dgx1", 0b11, (LoanDonor("dgx2", 0b110, 71), LoanDonor("dgx3", 0b1, 72)))
REQUEST = "token=t tpn=gres/gpu:5 nodes=1- by=node remote=1"
AT = 1000


def node(name: str, free: int, slots: tuple[str, ...] = V100, **more: object) -> Node:
    values: dict[str, object] = {"cpus": 8, "memory_mb": 8000, "partitions": frozenset({"batch"})}
    model = slots[0].partition(".")[0]
    return Node(name, slots, free, model=model, **{**values, **more})


def room(*nodes: Node) -> dict[str, Node]:
    return {one.name: one for one in nodes}


NEED = Need(4, cpus=4, memory_mb=1000, partitions=frozenset({"batch"}))


def lent(*nodes: Node, need: Need = NEED, settings: RemoteConfig = SETTINGS) -> dict[str, int]:
    """Slots by node, the job's own node first; nothing without an offer."""
    left = room(*nodes)
    found = offer(matcher.borrower(need, left), matcher.spare_capacity(left), settings)
    return {found.host: found.mask, **found.donors} if isinstance(found, Offer) else {}


# -- who lends ----------------------------------------------------------------


ELSE = frozenset({"else"})


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param(nodes, expected, id=sentence)
        for sentence, nodes, expected in (
            ("two nodes with two free GPUs each",
             (node("a", 0b1010), node("b", 0b0101)), {"a": 0b1010, "b": 0b0101}),
            ("the job runs where most of its GPUs are",
             (node("a", 0b1), node("b", 0b111)), {"b": 0b111, "a": 0b1}),
            ("too few GPUs in all", (node("a", 0b11), node("b", 0b1)), {}),
            ("no CPUs for a donor", (node("a", 0b11), node("b", 0b11, cpus=1)), {}),
            ("no memory for a donor", (node("a", 0b11), node("b", 0b11, memory_mb=1000)), {}),
            ("nowhere the job's CPUs", (node("a", 0b11, cpus=3), node("b", 0b11, cpus=3)), {}),
            ("a donor is down", (node("a", 0b11), node("b", 0b11, is_open=False)), {}),
            ("a donor of another model", (node("a", 0b11), node("b", 0b11, P100)), {}),
            ("of another partition", (node("a", 0b11), node("b", 0b11, partitions=ELSE)), {}),
            ("no GPU beside the job", (node("a", 0), node("b", 0b1111, cpus=2, memory_mb=500)), {}),
        )
    ],
)  # fmt: skip
def test_who_lends_to_a_job_of_four_gpus(nodes, expected):
    assert lent(*nodes) == expected


def test_the_papers_order_is_the_least_occupied_first():
    nodes = (node("a", 0b111, jobs=3), node("b", 0b11, jobs=1))
    found = lent(*nodes, settings=replace(SETTINGS, donors="least-occupied"))
    assert found == {"b": 0b11, "a": 0b11}


def test_a_middleware_for_one_donor_gets_no_more():
    nodes = (node("a", 0b11), node("b", 0b1), node("c", 0b1))
    assert len(lent(*nodes)) == 3
    one = replace(SETTINGS, preset=presets.load("cricket"))
    assert lent(*nodes, settings=one) == {}


def test_an_offer_holds_the_gpus_cpus_and_memory_of_all_its_nodes():
    found = Offer("a", 0b11, {"b": 0b11})
    assert holds_of(found, NEED.cpus, NEED.memory_mb, SETTINGS, 2000.0) == (
        Hold({"a": 0b11}, 4, 1000, 2000.0),
        Hold({"b": 0b11}, 2, 1024, 2000.0),
    )


# -- who may ------------------------------------------------------------------


def queued(stage: str = "gated", job_id: int = 7, more: str = "", **fields: object) -> QueuedJob:
    values: dict[str, object] = {
        "name": str(job_id), "partition": "batch", "state": "PENDING", "reason": "BeginTime",
        "priority": 100, "eligible": 1100, "time_limit_s": 90, "cpus": 4,
        "uid": 1000, "user": "alice", "account": "research",
        "admin_comment": f"[gpu-slots: {stage} {REQUEST} {more}]",
    }  # fmt: skip
    return QueuedJob(job_id, **{**values, **fields})


def asked(**fields: object) -> bool:
    return may_borrow(replace(Demand("node", gpus=4, per_node=4), **fields))


def test_only_jobs_of_one_node_borrow():
    assert asked()
    assert asked(form="job")
    assert asked(form="job", max_nodes=1)
    for refused in (
        {"exclusive": True}, {"form": "task"}, {"is_22_05": True},
        {"req_nodes": "dgx1"}, {"cpus_per_gpu": 2}, {"mem_gpu_mb": 5},
        {"nodes": 2}, {"max_nodes": 3}, {"per_node": 1},
    ):  # fmt: skip
        assert not asked(**refused), refused


def test_a_job_asks_for_it_or_its_partition_does(tmp_path):
    """`rq` is an R queue, `plain` says auto by itself; a user's own word goes first."""
    lends = "enforcement: slots\nremote: {{allow: yes, r_queues: [rq]}}"
    auto = "plain: {{hints: {{remote: auto, profile: md}}}}"
    text = BASIC.replace("plain: {{policy: first-fit}}", auto) + lends
    rules = Rules(basic_config(tmp_path, text))

    def borrows(partition: str, hint: str) -> str:
        found = read_preferences(hint, rules(partition))
        return f"auto {found.profile}" if found.is_auto else "yes" if found.remote else ""

    hints = ("", "remote=allow", "remote=auto,profile=x", "remote=no", "off")
    partitions = ("batch", "rq", "rq,batch", "plain")
    assert {one: [borrows(one, hint) for hint in hints] for one in partitions} == {
        "batch": ["", "yes", "auto x", "", ""],
        "rq": ["yes", "yes", "auto x", "", ""],
        "rq,batch": ["", "yes", "auto x", "", ""],
        "plain": ["auto md", "yes", "auto x", "", ""],
    }


def test_where_the_site_lends_nothing_asking_for_it_is_refused_in_one_line(tmp_path):
    rules = Rules(basic_config(tmp_path))
    for hint in ("remote=allow", "remote=auto"):
        with pytest.raises(HintRefused, match="remote: GPUs of other nodes are not lent here; exp"):
            read_preferences(hint, rules("batch"))
    assert not read_preferences("remote=no", rules("batch")).remote


# -- what stands in Slurm -----------------------------------------------------


def test_a_loan_is_read_from_its_own_text():
    assert Loan.parsed(LOAN.text()) == LOAN
    ready = LOAN.with_ports({71: 5000, 72: 5001})
    assert ready.text() == "dgx1/3,dgx2/6/71/5000,dgx3/1/72/5001"
    assert Loan.parsed(ready.text()) == ready
    for bad in ("", "dgx1/3", "dgx1", "dgx1/3,dgx2/6", "dgx1/3,dgx2/x/71", "a/1,b/1/2/3/4"):
        assert GateRecord("gated", {"loan": bad}).loan is None


def a_donor(job_id: int, comment: str = "gpu-donor of=7", **fields: object) -> QueuedJob:
    node, gpus = ("dgx3", (0,)) if job_id == 72 else ("dgx2", (1, 2))
    values: dict[str, object] = {
        "state": "RUNNING", "cpus": 2, "memory_per_node_mb": 1024, "uid": 1000, "nodes": (node,),
        "gpus": {node: gpus}, "req_nodes": node, "admin_comment": "[gpu-donor: of=7]",
    }  # fmt: skip
    return QueuedJob(job_id, str(job_id), comment=comment, **{**values, **fields})


def ready(job_id: int, port: int = 5000, **fields: object) -> QueuedJob:
    return a_donor(job_id, f"gpu-donor ready of=7 port={port}", **fields)


def test_a_loan_stands_when_every_donor_runs_and_says_where():
    assert stands(ready(71), ready(72, 5001)).ports == {71: 5000, 72: 5001}
    for other in (a_donor(72), ready(72, state="PENDING"), ready(72, port=500000)):
        assert stands(ready(71), other) == Standing({})
    strange = a_donor(72, "gpu-donor ready of=8 port=5001")
    assert stands(ready(71), strange) == Standing({})
    assert stands(ready(71)).trouble == "the donor on dgx3 is gone"
    failed = a_donor(72, "gpu-donor failed of=7 dgx3: no free port in 1-2")
    assert stands(ready(71), failed).trouble == "dgx3: no free port in 1-2"


@pytest.mark.parametrize(
    ("sentence", "changes"),
    [
        ("of another user", {"uid": 1001}),
        ("that says it is another's", {"admin_comment": "[gpu-donor: of=8]"}),
        ("that no engine submitted", {"admin_comment": "", "comment": "a job of mine"}),
    ],
)
def test_no_other_job_is_a_loans_donor(sentence, changes):
    """Whatever a loan's record names: such a job is never waited for, nor ended."""
    other = replace(ready(72), **changes)
    told = "job 72 on dgx3 is no donor of this job"
    assert stands(ready(71), other).trouble == told, sentence
    slurm, job = Slurm(), gated_with(LOAN)
    queue = {one.job_id: one for one in (job, ready(71), other)}
    lender(slurm).give_up(job, kept_of(job), told, queue)
    assert slurm.words[-1] == "scancel 71"


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes": ("dgx3", "dgx4")},
        {"gpus": {"dgx3": (0, 1)}},
        {"nodes": ("dgx4",), "gpus": {"dgx4": (0,)}},
        {"state": "PENDING", "min_nodes": 8},
        {"state": "PENDING", "req_nodes": "dgx4"},
    ],
)
def test_a_donor_that_is_more_than_what_is_lent_ends_the_loan(changes):
    assert stands(ready(71), ready(72, **changes)).trouble == "the donor on dgx3 was changed"


def stands(*queue: QueuedJob) -> Standing:
    """How the loan of job 7 stands with these jobs in the queue."""
    job = gated_with(LOAN)
    return standing(job, kept_of(job), None, {one.job_id: one for one in queue}, LoanContext(AT))


# -- the plan -----------------------------------------------------------------


def first_choice(name: str, job: QueuedJob, want: Want, found: Sequence[Group]) -> Choice:
    mask = sum(1 << i for i in range(want.need.gpus))
    return Chosen(found[0], mask, "")


class OneByOne:
    """Lends to whoever asks, by the R queue."""

    at_once = False

    def borrow(self, jobs: Sequence[Candidate], made: GatePlan) -> list[Offer | Refusal | None]:
        [one] = jobs
        job = replace(matcher.borrower(one.need, made.nodes), end=AT + one.job.time_limit_s)
        return [offer(job, matcher.spare_capacity(made.nodes), SETTINGS)]


def planned(*jobs: QueuedJob, nodes: dict[str, Node], lends: bool = True) -> GatePlan:
    context = GateContext(AT, ready_s=60 if lends else None, lease_s=120)
    wants = Wants().read(jobs, emptied(nodes))
    return plan(jobs, wants, nodes, context, first_choice, (), OneByOne() if lends else None)


TWO = room(node("dgx1", 0b111), node("dgx2", 0b11))


def test_a_job_that_fits_nowhere_is_offered_a_loan_and_stays_gated():
    made = planned(queued(), nodes=TWO)
    [(job, _, found)] = made.offers
    assert (job.name, found.host, found.donors) == ("7", "dgx1", {"dgx2": 0b11})
    assert (made.releases, made.first) == ([], None)
    assert {name: one.free for name, one in made.nodes.items()} == {"dgx1": 0, "dgx2": 0}


def test_a_job_that_fits_somewhere_borrows_nothing():
    made = planned(queued(), nodes=room(node("dgx1", 0x1F), node("dgx2", 0xFF)))
    assert made.released == ["7"]
    assert made.offers == []


def test_a_loan_delays_nobody_who_came_first():
    """The first job waits for all of dgx1, which is free at 1050."""
    first = queued(job_id=1, priority=200)
    eight = first.admin_comment.replace("gpu:5", "gpu:8")
    first = replace(first, admin_comment=eight, depends=False)
    held = tuple(range(3, 8))
    running = QueuedJob(9, state="RUNNING", nodes=("dgx1",), gpus={"dgx1": held}, end=1050)
    for limit_s, names in ((50, ["7"]), (51, [])):
        made = planned(running, first, queued(time_limit_s=limit_s), nodes=TWO)
        assert [job.name for job, _, _ in made.offers] == names


def gated_with(loaned: Loan, at: int = AT, **fields: object) -> QueuedJob:
    return queued(more=f"loan={loaned.text()} loan_at={at}", **fields)


THREE = room(node("dgx1", 0b11), node("dgx2", 0b111), node("dgx3", 0b1))


def test_a_job_starts_on_its_local_slots_once_its_donors_are_ready():
    made = planned(gated_with(LOAN), ready(71), ready(72, 5001), nodes=THREE)
    [release] = made.releases
    [(name, update)] = release.steps
    assert (name, update.begin_time, update.req_nodes) == ("7", NOW, "dgx1")
    assert update.tres_per_node == "gres/gpu:v100.s0:1,gres/gpu:v100.s1:1"
    kept = GateRecord.read_from(update.admin_comment or "")
    assert (kept.state, kept.get("tpn")) == ("placed", "gres/gpu:5")
    found = [(one.node, one.gpus, one.job_id, one.port) for one in join.donors_in(kept.text())]
    assert found == [("dgx2", 2, 71, 5000), ("dgx3", 1, 72, 5001)]


def test_while_donors_get_ready_everything_is_kept_for_the_loan():
    waiting = a_donor(71, state="PENDING")
    made = planned(gated_with(LOAN), waiting, a_donor(72), nodes=THREE)
    assert (made.releases, made.broken) == ([], [])
    # dgx3's GPU is the running donor's already, as Slurm's own figures say.
    assert {name: one.free for name, one in made.nodes.items()} == {"dgx1": 0, "dgx2": 1, "dgx3": 1}


@pytest.mark.parametrize(
    ("jobs", "nodes", "why"),
    [
        ([ready(71)], THREE, "the donor on dgx3 is gone"),
        ([ready(71), ready(72, state="COMPLETING")], THREE, "the donor on dgx3 is gone"),
        (
            [ready(71), a_donor(72, "gpu-donor failed of=7 dgx3: x: no such program")],
            THREE,
            "dgx3: x: no such program",
        ),
        ([ready(71), ready(72)], room(node("dgx1", 1)), "the GPUs of dgx1 are others' now"),
        (
            [ready(71), ready(72)],
            room(node("dgx1", 3, is_open=False)),
            "the GPUs of dgx1 are others' now",
        ),
    ],
    ids=["gone", "ending", "cannot serve", "local GPUs taken", "node down"],
)
def test_a_loan_is_given_up_whole(jobs, nodes, why):
    made = planned(gated_with(LOAN), *jobs, nodes=nodes)
    assert [(job.name, said) for job, _, said in made.broken] == [("7", why)]
    assert (made.releases, made.added) == ([], [])


def test_donors_that_take_too_long_are_given_up():
    slow = (a_donor(71), a_donor(72))
    assert planned(gated_with(LOAN, AT - 60), *slow, nodes=THREE).broken == []
    made = planned(gated_with(LOAN, AT - 61), *slow, nodes=THREE)
    assert made.broken[0][2] == "donors were not ready within 60 s"


def test_a_site_that_lends_no_more_ends_the_loans_under_way():
    made = planned(gated_with(LOAN), ready(71), ready(72), nodes=THREE, lends=False)
    assert made.broken[0][2] == "GPUs are not lent any more"


def placed_with(at: int, **fields: object) -> QueuedJob:
    """A borrower on its two local slots."""
    values = {"tres_per_node": "gres/gpu:v100.s0:1,gres/gpu:v100.s1:1", "req_nodes": "dgx1"}
    more = f"loan={LOAN.text()} at={at}"
    return queued("placed", more=more, **{**values, "eligible": at, "reason": "None", **fields})


def test_a_released_borrower_keeps_its_slots_until_it_starts():
    made = planned(placed_with(AT), ready(71), ready(72), nodes=THREE)
    assert made.updates == []
    assert made.nodes["dgx1"].free == 0


def test_a_borrower_that_was_put_back_asks_for_all_its_gpus_again():
    made = planned(placed_with(AT - 5, eligible=AT + 120), nodes=THREE)
    [(_, update)] = made.updates
    assert update.tres_per_node == "gres/gpu:5"
    kept = GateRecord.read_from(update.admin_comment or "")
    assert (kept.state, kept.get("loan"), kept.get("remote")) == ("gated", "", "1")


# -- in Slurm -----------------------------------------------------------------


class Slurm:
    """Remembers what it was told, in order; refuses the submit number `refuses`."""

    def __init__(self, refuses: int = 0) -> None:
        self.told: list[tuple[str, object]] = []
        self.refuses = refuses
        self.submitted = 0
        self.away = ""
        self.made: list[QueuedJob] = []
        self.donor_is: dict[str, object] = {}

    def update(self, jobs: Sequence[str], change: JobUpdate) -> None:
        self.told.append((f"update {','.join(jobs)}", change))

    def __call__(self, argv: list[str], stdin: str = "", timeout_s: float | None = None) -> str:
        self.told.append((" ".join(argv), None))
        if argv[:2] == ["scontrol", "requeue"] and self.refuses:
            raise SlurmError("Requested operation is presently disabled")
        return ""

    def donor(self, asked: Question) -> int:
        self.submitted += 1
        if self.submitted == self.refuses:
            raise SlurmError("sbatch: error: AssocMaxSubmitJobLimit")
        self.told.append((asked.line().decode(), None))
        donor = a_donor(70 + self.submitted, state="PENDING")
        self.made.append(replace(donor, **self.donor_is))
        return 70 + self.submitted

    def queue(self) -> list[QueuedJob]:
        return self.made

    def obstacle(self) -> str:
        return self.away

    @property
    def words(self) -> list[str]:
        return [words for words, _ in self.told]


def lender(slurm: Slurm, settings: RemoteConfig = SETTINGS) -> SlurmLoans:
    mode = SlotLoans()
    return SlurmLoans(settings, slurm, slurm, slurm, mode, lambda: float(AT))


OFFER = Offer("dgx1", 0b11, {"dgx2": 0b110, "dgx3": 0b1})


def kept_of(job: QueuedJob) -> GateRecord:
    kept = GateRecord.read_from(job.admin_comment)
    assert kept is not None
    return kept


def test_donors_are_submitted_then_written_down_then_let_go():
    """Killed after any of these, what is left either starts nothing or is named by its borrower."""
    slurm, job = Slurm(), queued()
    assert lender(slurm).lend(job, kept_of(job), OFFER, THREE) == LOAN
    assert slurm.words == [
        *("donor 7 1000 dgx2 2", "donor 7 1000 dgx3 1"),
        *("update 7", "update 71", "update 72"),
    ]
    written, first = slurm.told[2][1], slurm.told[3][1]
    kept = GateRecord.read_from(written.admin_comment or "")
    assert (kept.state, kept.get("loan")) == ("gated", LOAN.text())
    assert written.begin_time is None
    assert first.begin_time == NOW
    assert first.tres_per_node == "gpu:v100.s1:1,gpu:v100.s2:1"
    assert first.admin_comment == "[gpu-donor: of=7]"


def test_where_one_donor_is_refused_all_are_ended():
    slurm, job = Slurm(refuses=2), queued()
    assert lender(slurm).lend(job, kept_of(job), OFFER, THREE) is None
    assert slurm.words[-1] == "scancel 71"
    assert not any(words.startswith("update") for words in slurm.words)


@pytest.mark.parametrize(
    "other",
    [
        {"uid": 1001},
        {"admin_comment": "[gpu-donor: of=8]"},
        {"admin_comment": "", "comment": "gpu-donor of=8"},
        {"job_id": 99},
        {"req_nodes": "dgx3"},
        {"min_nodes": 2},
    ],
)
def test_a_job_that_is_no_donor_of_the_borrowers_user_is_left_alone(other):
    """Its id is what sbatch printed, which is the user's own process."""
    slurm, job = Slurm(), queued()
    slurm.donor_is = other
    assert lender(slurm).lend(job, kept_of(job), OFFER, THREE) is None
    assert slurm.words == ["donor 7 1000 dgx2 2"]


def test_donors_that_no_job_names_are_ended():
    slurm = Slurm()
    marked = a_donor(74, "anything", admin_comment="[gpu-donor: of=7]")
    unmarked = a_donor(73, admin_comment="")
    others = [
        QueuedJob(80 + i, comment=text, state="RUNNING")
        for i, text in enumerate(("my gpu-donor", "gpu-donor of mine", "gpu-donor of=7 too"))
    ]
    queue = [gated_with(LOAN), ready(71), a_donor(72, state="PENDING"), unmarked, marked, *others]
    lender(slurm).tidy(queue)
    assert slurm.words == ["scancel 73 74"]


@pytest.mark.parametrize(
    ("comment", "is_ended"), [("JS1:abc", False), ("", False), ("[gpu-slots: placed]", True)]
)
def test_running_donors_stay_where_nobody_knows_their_borrowers_record(comment, is_ended):
    """Somebody overwrote it; a job that has a record and names no donors needs none."""
    slurm = Slurm()
    borrower = replace(placed_with(AT, state="RUNNING"), admin_comment=comment)
    lender(slurm).tidy([borrower, replace(ready(71), state="RUNNING")])
    assert (slurm.words == ["scancel 71"]) is is_ended
    assert bool(slurm.words) is is_ended


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "SUSPENDED", "CONFIGURING"])
def test_donors_of_a_job_that_may_still_run_stay(state):
    slurm = Slurm()
    lender(slurm).tidy([placed_with(AT, state=state), ready(71), ready(72)])
    assert slurm.words == []


def test_donors_end_with_their_borrower():
    slurm = Slurm()
    lender(slurm).tidy([placed_with(AT, state="COMPLETING"), ready(71), ready(72)])
    lender(slurm).tidy([ready(71), ready(72)])
    assert slurm.words == ["scancel 71 72"] * 2


def test_a_donor_that_is_ending_already_is_not_ended_again():
    slurm = Slurm()
    lender(slurm).tidy([replace(ready(71), state="COMPLETING"), ready(72)])
    assert slurm.words == ["scancel 72"]


def test_a_job_that_lost_a_donor_is_put_back_after_a_second_look():
    slurm = Slurm()
    ours = lender(slurm)
    queue = [placed_with(AT, state="RUNNING"), ready(71)]
    ours.tidy(queue)
    assert slurm.words == []
    ours.tidy([*queue, ready(72)])
    ours.tidy(queue)
    assert slurm.words == []
    ours.tidy(queue)
    assert slurm.words == ["scontrol requeue 7"]


def test_one_that_cannot_be_put_back_is_cancelled():
    slurm = Slurm(refuses=9)
    ours = lender(slurm)
    for _ in range(2):
        ours.tidy([placed_with(AT, state="RUNNING"), ready(71)])
    assert slurm.words == ["scontrol requeue 7", "scancel 7"]


def test_a_loan_that_came_to_nothing_leaves_the_job_waiting_for_local_gpus():
    slurm, job = Slurm(), gated_with(LOAN)
    queue = {71: a_donor(71), 72: a_donor(72)}
    lender(slurm).give_up(job, kept_of(job), "dgx2: rCUDAd: no such program", queue)
    [(_, update), (words, _)] = slurm.told
    assert words == "scancel 71 72"
    told = update.admin_comment or ""
    assert "remote GPUs: dgx2: rCUDAd: no such program; waits for GPUs of one node" in told
    kept = GateRecord.read_from(told)
    assert (kept.get("loan"), kept.get("loan_tries"), kept.get("loan_next")) == ("", "1", "1030")


def test_where_the_site_says_so_it_is_refused():
    slurm, job = Slurm(), gated_with(LOAN)
    refuses = replace(SETTINGS, unservable="refuse")
    queue = {71: a_donor(71), 72: a_donor(72)}
    lender(slurm, refuses).give_up(job, kept_of(job), "no free port in 1-2", queue)
    assert slurm.words[1:] == ["scancel 71 72", "scancel 7"]
    update = slurm.told[0][1]
    assert "no free port in 1-2; refused" in (update.admin_comment or "")


def test_nothing_is_lent_where_it_could_not_work():
    slurm = Slurm()
    ours = lender(slurm)
    assert ours.obstacle({"TaskProlog": "/x/task-prolog"}) == ""
    assert "no TaskProlog" in ours.obstacle({"TaskProlog": ""})
    slurm.away = "/run/x: No such file or directory"
    assert ours.obstacle({"TaskProlog": "/x"}) == slurm.away
