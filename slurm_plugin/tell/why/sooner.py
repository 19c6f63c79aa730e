"""What would start a waiting job now: one change of its request at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from slurm_plugin.act.lending import forms, matcher
from slurm_plugin.act.lending.choice.offer import Offer, offer
from slurm_plugin.base.job_notes.records import GateRecord, LoanRecord
from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.queue.candidates import Need, cpus_for, fits
from slurm_plugin.queue.capacity import Hold
from slurm_plugin.tell.why import words
from slurm_plugin.tell.why.resources import shortage_of
from slurm_plugin.tell.why.site import SiteNodes, demand_of_job, site_of
from slurm_plugin.tell.why.state import WaitingState

#: Changes that are told.
MAX_CHANGES = 6
#: Numbers of nodes over which the GPUs could be spread.
_SPREADS = (2, 3, 4, 6, 8)


def changes(
    state: WaitingState,
    site: SiteNodes,
    need: Need,
    first: Need | None,
    lending: RemoteConfig | None = None,
) -> tuple[str, ...]:
    """Each as `with --gres=gpu:2 now on dgx2`; none of them delays `first`, the first one ahead.

    `lending` is the site's, where it is known. Raises Unsupported for a constraint that cannot be
    judged.
    """
    limit_s = state.job.time_limit_s
    options = []
    for option, other in _variants(need, site, state):
        hold = _now(other, site, first, limit_s, state.now)
        if hold is not None:
            options.append(f"{option} now on {words.named(tuple(hold.gpus))}")
    options += _shorter(state, site, need, first)
    if lending is not None and lending.allow:
        options += _borrowing(state, site, need, first, lending)
    return tuple(options[:MAX_CHANGES])


def _borrowing(
    state: WaitingState, site: SiteNodes, need: Need, first: Need | None, lending: RemoteConfig
) -> Iterator[str]:
    """GPUs of other nodes, where the job may borrow and has not asked for it."""
    asked = demand_of_job(state.job, state.entries)
    kept = GateRecord.read_from(state.entries) or LoanRecord.read_from(state.entries)
    if asked is None or (kept is not None and kept.may_borrow) or shortage_of(need, site) is None:
        return
    loan = loan_for(state, site, need, first, lending)
    if isinstance(loan, Offer):
        # Without -N1 Slurm itself spreads GPUs that are counted for the whole job.
        option = "with -N 1 and" if asked.form == "job" and asked.max_nodes != 1 else "with"
        nodes = words.named((loan.host, *loan.donors))
        yield f"{option} --comment='gpu-topo: remote=allow' now on {nodes}, over the network"


def loan_for(
    state: WaitingState, site: SiteNodes, need: Need, first: Need | None, lending: RemoteConfig
) -> Offer | str:
    """What could be lent to the job now if it may borrow, or why nothing could."""
    job, asked = state.job, demand_of_job(state.job, state.entries)
    if asked is None:
        return "it asks for no GPUs"
    if why := forms.obstacle(asked, is_het=bool(job.het_id)):
        return why
    borrower = matcher.borrower(need, site.nodes, lending)
    answer = offer(borrower, matcher.spare_capacity(site.nodes), lending)
    if not isinstance(answer, Offer):
        return answer.why
    if first is not None and site.delays(first, answer.holds, state.now):
        return "that would delay the first job that waits"
    return answer


def _now(
    need: Need, site: SiteNodes, first: Need | None, limit_s: float, now: float
) -> Hold | None:
    """What the job would take now; None where it does not fit, or delays the first one."""
    end = now + limit_s if limit_s else float("inf")
    hold = site.hold(need, site.nodes, end)
    if hold is None or first is None:
        return hold
    return None if site.delays(first, [hold], now) else hold


def _variants(need: Need, site: SiteNodes, state: WaitingState) -> Iterator[tuple[str, Need]]:
    """The option to give instead, and what the job would need then."""
    need = replace(need, spread=None)  # it is that of all of its GPUs
    if fewer := _most_gpus(need, site):
        yield f"with {_gpu_option(need, state, fewer, need.nodes)}", replace(need, gpus=fewer)
    if spread := _spread(need, site):
        option = _gpu_option(need, state, spread.gpus, spread.nodes)
        yield f"with -N {spread.nodes} {option}", spread
    if need.types:
        yield "with GPUs of any type", replace(need, types=frozenset())
    if need.req_nodes:
        yield "without --nodelist", replace(need, req_nodes=frozenset())
    if need.exc_nodes:
        yield "without --exclude", replace(need, exc_nodes=frozenset())
    if need.features:
        yield "without --constraint", replace(need, features="")
    # Some partitions give whole nodes, whatever a job asks for (OverSubscribe=EXCLUSIVE).
    if need.exclusive and all(one.share for one in state.partitions):
        yield "without --exclusive", replace(need, exclusive=False)
    yield from _beside(need, site)


def _gpu_option(need: Need, state: WaitingState, gpus: int, nodes: int) -> str:
    """So many GPUs on each of the nodes, in the words in which the job asks for them."""
    kind = f"{min(need.types)}:" if len(need.types) == 1 else ""
    asked = demand_of_job(state.job, state.entries)
    is_for_job = asked is not None and asked.form == "job"
    return f"--gpus={kind}{gpus * nodes}" if is_for_job else f"--gres=gpu:{kind}{gpus}"


def _spread(need: Need, site: SiteNodes) -> Need | None:
    """The GPUs of one node, evenly on the fewest nodes on which they fit; None for nowhere."""
    if need.nodes > 1 or need.exclusive or need.req_nodes:
        return None
    for nodes in _SPREADS:
        each = need.gpus // nodes
        if each and not need.gpus % nodes:
            cpus, memory = -(-need.cpus // nodes), -(-need.memory_mb // nodes)
            spread = replace(need, gpus=each, nodes=nodes, cpus=cpus, memory_mb=memory)
            if shortage_of(spread, site) is None:
                return spread
    return None


def _most_gpus(need: Need, site: SiteNodes) -> int:
    """The most GPUs per node, fewer than asked for, with which it would fit; 0 for none."""
    for gpus in range(min(need.gpus - 1, 64), 0, -1):
        if shortage_of(replace(need, gpus=gpus), site) is None:
            return gpus
    return 0


def _beside(need: Need, site: SiteNodes) -> Iterator[tuple[str, Need]]:
    """Fewer CPUs, less memory: as much as is free beside enough GPUs."""
    bare = replace(need, cpus=1, memory_mb=0)
    free = [node for node in site.nodes.values() if fits(bare, node)]
    cpus = max((cpus_for(need, node) for node in free), default=0)
    memory = max((node.memory_mb for node in free), default=0)
    if 0 < cpus < need.cpus:
        yield f"with {cpus} CPU{'' if cpus == 1 else 's'} per node", replace(need, cpus=cpus)
    if 0 < memory < need.memory_mb:
        yield f"with --mem={memory}", replace(need, memory_mb=memory)


def _shorter(state: WaitingState, site: SiteNodes, need: Need, first: Need | None) -> Iterator[str]:
    """A time limit that ends before the first one's start, or before a reservation begins."""
    ends = [one.start for one in state.extras.reservations if one.start > state.now]
    if first is not None:
        start = site.start_of(first, state.now)
        ends += [int(start)] if start < float("inf") else []
    for end in sorted(ends, reverse=True):
        minutes = int(end - state.now) // 60
        if minutes < 1 or (state.job.time_limit_s and minutes * 60 >= state.job.time_limit_s):
            continue
        job = replace(state.job, time_limit_s=minutes * 60)
        short = site_of(replace(state, job=job))
        hold = _now(need, short, first, minutes * 60, state.now)
        if hold is not None:
            where = words.named(tuple(hold.gpus))
            yield f"with -t {words.duration(minutes * 60)} now on {where}"
            return
