"""What a job would get if it were submitted now: GPUs and bandwidth, or what it waits for."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gres_topology.features import Unsupported
from slurm_plugin.act.gates import question as slots_question
from slurm_plugin.act.gates.admission import APART
from slurm_plugin.act.gates.plan import ChosenSlots
from slurm_plugin.act.lending.choice.offer import Offer
from slurm_plugin.base.log_lines import LoggedSet, known
from slurm_plugin.base.placement import CandidateNode, PlacementQuestion
from slurm_plugin.base.protocol import Use, WaitFor
from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.decide.decide import Decider
from slurm_plugin.decide.machines import Machines, nvlink
from slurm_plugin.decide.preferences import HintRefused, read_preferences
from slurm_plugin.queue.candidates import Need, fits, groups, has_cpus_for_sure
from slurm_plugin.queue.capacity import Hold
from slurm_plugin.queue.demand import Unplaceable
from slurm_plugin.slurm.interface import QueuedJob
from slurm_plugin.tell.why import words
from slurm_plugin.tell.why.answer import on_the_nodes
from slurm_plugin.tell.why.estimate import limit_of, timeline_of
from slurm_plugin.tell.why.limits import limit_in_the_way, limit_not_judged
from slurm_plugin.tell.why.read import SbatchSays
from slurm_plugin.tell.why.reasons import licence_lacking, partition_state, refusals
from slurm_plugin.tell.why.request import NotJudged, TriedJob
from slurm_plugin.tell.why.resources import shortage_of
from slurm_plugin.tell.why.site import SiteNodes, ahead_of, need_of_job, site_of, without_loans
from slurm_plugin.tell.why.sooner import loan_for
from slurm_plugin.tell.why.state import WaitingState, WaitReason

UNSURE = (
    "how many CPUs are left to its partition goes by Slurm's release (MaxCPUsPerNode,"
    " MaxCPUsPerSocket)"
)
#: The policy that plans jobs' shapes instead of choosing GPUs.
GENIE = "genie"
_NEVER = re.compile(r"can(?:not| never) start( as it is|): ")


@dataclass(frozen=True, slots=True)
class Trial:
    """The answer to one request."""

    sentence: str
    #: None where it is not known here.
    starts_now: bool | None
    #: Node -> GPUs in rank order, by Slurm's index; empty GPUs where Slurm chooses them.
    gpus: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    #: Effective bandwidth of these GPUs in GB/s; None where it is not known.
    effbw_gbps: float | None = None
    evidence: tuple[tuple[str, str], ...] = ()
    #: Why it would never start as far as is known here; '' where it would.
    never: str = ""
    #: What of the job is not judged here, so that nothing is said that Slurm does not say, too.
    unsure: str = ""

    def beside(self, says: SbatchSays) -> Trial:
        """The answer as sure as Slurm is of it: neither never nor now where Slurm says otherwise.

        It plans without the jobs that wait: a start that it finds later is none now, but one that
        it plans for now may be one later.
        """
        if self.unsure and not (self.never and says.would_start is False):
            return self._as_slurm_says(says)
        if says.would_start and self.never:
            text = f"Slurm would start it, now or later; as far as is known here {self.never}."
            return replace(self, sentence=text, never="")
        if (says.would_start is False or says.is_later) and self.starts_now:
            text = f"It would not start now, as Slurm says: {says.words}."
            return Trial(text, False, evidence=(("by ours", self.sentence), *self.evidence))
        return self

    def _as_slurm_says(self, says: SbatchSays) -> Trial:
        """The answer of which Slurm has to be sure."""
        if says.would_start is False or says.is_later:
            text = f"It would not start now, as Slurm says: {says.words}."
            return Trial(text, False, unsure=self.unsure)
        if says.would_start and says.is_later is False and self.starts_now:
            where = f"on which nodes and GPUs is not known here: {self.unsure}"
            return Trial(f"It would start now, as Slurm says; {where}.", True, unsure=self.unsure)
        text = f"Whether it would start now is not known here: {self.unsure}."
        return Trial(text, None, unsure=self.unsure)


def trial(asked: TriedJob, decider: Decider | None, lending: RemoteConfig | None = None) -> Trial:
    """What becomes of the job. Raises NotJudged where that is not known before its start.

    `decider` and `lending` are the site's, None where its configuration cannot be read here.
    """
    state, may_borrow = asked.state, False
    if decider is not None:
        try:
            may_borrow = _borrows_by_hint(asked, decider)
        except HintRefused as error:
            return Trial(f"sbatch would refuse it: gpu-topo: {error}.", False)
    if closed := _closed_partition(state):
        return Trial(f"sbatch would refuse it: no job may be submitted to {closed}.", False)
    if isinstance(kept_out := _where_taken(state), WaitReason):
        return _waits(kept_out)
    unjudged = asked.beyond or asked.by_slurm
    unsure = f"{words.named(unjudged)} {words.is_are(len(unjudged))} not judged" if unjudged else ""
    if asked.beyond:
        raise NotJudged(unsure)
    asked = replace(asked, state=kept_out)
    outcome = _on_the_nodes(asked, decider, lending if may_borrow else None)
    unsure = outcome.unsure or unsure
    # What the jobs that wait leave over, and what our policy makes of other nodes, Slurm's test
    # does not know.
    if outcome.starts_now and unsure:
        is_alone = not ahead_of(kept_out) and not state.snapshot.settings.hides_jobs
        if not is_alone or _may_be_postponed(asked, decider):
            raise NotJudged(unsure)
    if decider is not None and asked.state.job.requests:
        outcome = _with_nvlink(outcome, asked.state.job.min_nodes, decider.machines)
    return replace(outcome, unsure=unsure)


def not_judged(error: NotJudged) -> Trial:
    """The answer where only Slurm may know."""
    return Trial("", None, unsure=str(error))


def _with_nvlink(outcome: Trial, nodes: int, machines: Machines) -> Trial:
    """The answer with what NVLink there is between the nodes of a job on so many of them."""
    text = nvlink(machines, outcome.gpus)
    sizes = Counter(one.domain or "" for one in machines.values())
    del sizes[""]
    is_known = all(one.domain is not None for one in machines.values())
    if not text and sizes and is_known and nodes > (largest := max(sizes.values())):
        text = f"it asks for {nodes} nodes, and the largest NVLink domain has {largest}"
    return replace(outcome, evidence=(*outcome.evidence, ("NVLink", text))) if text else outcome


def _on_the_nodes(asked: TriedJob, decider: Decider | None, lending: RemoteConfig | None) -> Trial:
    """What becomes of a job that its partitions take; `lending` where it may borrow."""
    state = asked.state
    site, loans = without_loans(site_of(state), state)
    try:
        need = need_of_job(state.job, site)
        ahead = [job for job in ahead_of(state) if job.job_id not in loans]
        left = _left_by_others(state, site, ahead)
        hold = left.hold(need, left.nodes, math.inf)
        if (wait := limit_in_the_way(state, need) or licence_lacking(state)) is not None:
            return _waits(wait)
        if hold is not None and shortage_of(need, left) is None:
            nodes = {n: one for n, one in left.nodes.items() if has_cpus_for_sure(need, one)}
            sure = replace(left, nodes=nodes)
            if vague := limit_not_judged(state, need, is_vague=bool(asked.by_slurm)):
                raise NotJudged(vague)
            if (for_sure := sure.hold(need, sure.nodes, math.inf)) is not None:
                return _placed(asked, need, sure, for_sure.gpus, decider)
            return replace(_placed(asked, need, left, hold.gpus, decider), unsure=UNSURE)
        reason, first = on_the_nodes(state, site, need, ahead)
        facts = _kept_facts(loans)
        if lending is not None and shortage_of(need, site) is not None:
            loan = _loan(loan_for(state, site, need, first, lending), lending)
            facts = (("loan", loan), *facts)
        reason = replace(reason, evidence=(*facts, *reason.evidence))
    except Unplaceable as error:
        raise NotJudged(error.why) from error
    except Unsupported as error:
        raise NotJudged(f"--constraint is not judged: {error}") from error
    return _waits(reason)


def _borrows_by_hint(asked: TriedJob, decider: Decider) -> bool:
    """May the job borrow GPUs of other nodes?

    Raises HintRefused as at a submit, NotJudged for a hint whose outcome is not known here.
    """
    job = asked.state.job
    rule = decider.rule(job.partition, job.account, job.uid)
    if rule.mode != "enforce":
        return False
    preferences = read_preferences(asked.hint, rule)
    if asked.hint and preferences.policy == GENIE and not preferences.off:
        raise NotJudged(
            "with policy=genie the engine plans a job's nodes, GPUs and start together with all"
            " others that wait; what this one would get is not known before its submit"
        )
    return preferences.remote


def _may_be_postponed(asked: TriedJob, decider: Decider | None) -> bool:
    """Does the job want GPUs of some worth, for which it may have to wait?"""
    if decider is None:
        return False
    job = asked.state.job
    preferences = read_preferences(asked.hint, decider.rule(job.partition, job.account, job.uid))
    return "min-utility" in preferences.values


def _closed_partition(state: WaitingState) -> str:
    """The partitions where all of them take no new jobs, '' otherwise. DOWN means: later."""
    states = {one.state for one in state.partitions}
    if not states or states & {"UP", "DOWN"}:
        return ""
    return " and ".join(f"{one.name}, which is {one.state}" for one in state.partitions)


def _where_taken(state: WaitingState) -> WaitingState | WaitReason:
    """The state with only those of the job's partitions that would start it.

    A WaitReason where there are none. Where Slurm tells of no partition it is left as it is.
    """
    closed = refusals(state)
    taking = [one for one in state.partitions if one.name not in closed]
    up = [one.name for one in taking if one.state == "UP"]
    takes_all = state.snapshot.settings.config.get("EnforcePartLimits") in ("ALL", "YES")
    if closed and (takes_all or not taking):
        return next(iter(closed.values()))
    if taking and not up:
        return partition_state(state)
    return replace(state, job=replace(state.job, partition=",".join(up))) if up else state


def _kept_facts(loans: Mapping[int, Hold]) -> tuple[tuple[str, str], ...]:
    """What other jobs' loans keep, in words."""
    return tuple(
        ("kept", f"{words.gpus(mask.bit_count())} of {node} for job {job}, which meets its donors")
        for job, hold in loans.items()
        for node, mask in hold.gpus.items()
    )


def _loan(loan: Offer | str, lending: RemoteConfig) -> str:
    """What is known of a loan before the job waits for it."""
    if isinstance(loan, str):
        return f"nothing would be lent to it now: {loan}"
    if lending.decider == "drmaestro":
        return "it may borrow; what is lent is decided for all jobs together that wait then"
    lent = " and ".join(f"{words.gpus(m.bit_count())} of {n}" for n, m in loan.donors.items())
    own = f"{words.gpus(loan.mask.bit_count())} of {loan.host}"
    return f"{lent} would get ready, to serve it beside {own}; it starts when they are"


def _left_by_others(state: WaitingState, site: SiteNodes, ahead: list[QueuedJob]) -> SiteNodes:
    """What the jobs that wait leave over now, all of which come first."""
    timeline = timeline_of(ahead, site, state.now)
    if timeline.is_full:
        raise NotJudged(f"{len(ahead)} jobs wait already, more than are planned here")
    return replace(site, nodes=timeline.free_now(limit_of(state.job)))


def _waits(reason: WaitReason) -> Trial:
    if never := _NEVER.match(reason.text):
        as_it_is, why = never[1], reason.text[never.end() :]
        text = f"It would never start{as_it_is}: {why}."
        return Trial(text, False, evidence=reason.evidence, never=why)
    return Trial(f"It would not start now: it {reason.text}.", False, evidence=reason.evidence)


def _placed(
    asked: TriedJob, need: Need, site: SiteNodes, own: Mapping[str, int], decider: Decider | None
) -> Trial:
    """The job fits: which GPUs the policy gives it. `own` is what Slurm would take itself."""
    if decider is None or not need.gpus or need.exclusive:
        return _by_slurm(
            tuple(own), need, "which GPUs is not known here" if decider is None else ""
        )
    is_spread = len(own) > 1 and need.spread is not None and need.spread.gpus > 0
    if is_spread or not all(fits(need, site.nodes[name]) for name in own):
        # How many GPUs of each node Slurm takes goes by more than is known here.
        if _may_be_postponed(asked, decider):
            raise NotJudged("which GPUs Slurm takes of each node, and so what they are worth to it")
        return _by_slurm(tuple(own), need, "it spreads the job over its nodes")
    job = asked.state.job
    question = PlacementQuestion(0, 0, job.uid, 0, 0, (), job.account, job.partition, asked.hint)
    if site.is_slots:
        return _by_slots(question, need, site, own, decider)
    return _by_select(question, need, site, own, decider)


def _by_select(
    question: PlacementQuestion,
    need: Need,
    site: SiteNodes,
    own: Mapping[str, int],
    decider: Decider,
) -> Trial:
    """As the select plugin asks: all nodes that fit, and those that Slurm would take itself."""
    every = (room for room in site.rooms(need, site.nodes) if own.keys() <= room.keys())
    ready = sorted(
        (node for node in next(every, site.nodes).values() if fits(need, node)),
        key=lambda node: (node.weight, node.name),
    )
    highest = max(site.nodes[name].weight for name in own)
    candidates = tuple(
        CandidateNode(n.name, len(n.gpu_types), n.free, own.get(n.name, 0), n.weight)
        for n in ready
        # With --nodelist the nodes are Slurm's.
        if n.name in own or (n.weight <= highest and not need.req_nodes)
    )
    decision = decider.decide(replace(question, candidates=candidates))
    if isinstance(decision.reply, WaitFor):
        return _waits(WaitReason("policy", f"waits for better GPUs: {decision.reply.note}"))
    if not isinstance(decision.reply, Use):
        return _by_slurm(tuple(own), need, decision.reason)
    chosen = known(decision.record().chosen) or LoggedSet()
    return _told(chosen.gpus, known(chosen.effbw_gbps))


def _by_slots(
    question: PlacementQuestion, need: Need, site: SiteNodes, own: Iterable[str], decider: Decider
) -> Trial:
    """As the engine asks at a submit; all nodes of a job get the same GPUs."""
    candidates = groups(need, site.nodes)
    if not candidates:
        return _by_slurm(tuple(own), need, APART)
    choice, build = slots_question.ask(decider, question, need, candidates)
    if isinstance(choice, WaitFor):
        return _waits(WaitReason("policy", f"waits for better GPUs: {choice.note}"))
    if not isinstance(choice, ChosenSlots):
        return _by_slurm(candidates[0].names, need, choice.note)
    chosen = known(build().chosen) or LoggedSet()
    order = next(iter(chosen.gpus.values()), ())
    return _told(dict.fromkeys(choice.group.names, order), known(chosen.effbw_gbps))


def _by_slurm(names: tuple[str, ...], need: Need, why: str) -> Trial:
    whose = f", on GPUs that Slurm chooses ({why})" if need.gpus and why else ""
    text = f"It would start now on {words.named(names)}{whose}."
    return Trial(text, True, dict.fromkeys(names, ()))


def _told(gpus: Mapping[str, tuple[int, ...]], gbps: float | None) -> Trial:
    where = words.named([f"{name}: {','.join(map(str, some))}" for name, some in gpus.items()])
    several = sum(map(len, gpus.values())) > 1
    speed = f", {gbps:.1f} GB/s for its pattern" if gbps is not None and several else ""
    return Trial(f"It would start now on {where}{speed}.", True, gpus, gbps)
