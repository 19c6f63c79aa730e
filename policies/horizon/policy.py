"""horizon: as mapa, but with the jobs that wait and the GPUs that come free in view.

For some of the sets and nodes that mapa would take, what comes is played through (`futures`), mapa
deciding for everybody else. The set goes to the job with which all of them together fare best: a
rollout of one step over mapa (Bertsekas, Tsitsiklis and Wu 1997, section 2). With an empty queue
it is mapa.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from policies.contract.bits import gpus_of
from policies.contract.hint_keys import BATCH, COMMUNICATION, PROFILE, USUAL_COMMUNICATION, USUALLY
from policies.contract.nodes import candidates
from policies.contract.nouns import Cluster, NodeState, Placement, Request, Wait
from policies.contract.policy import UNKNOWN_SITE, LooksAt, Site
from policies.horizon.communication import Communication, KnownShare, told_apart
from policies.horizon.futures import (
    MOST_GPUS,
    MOST_GPUS_WAITING,
    Choices,
    Future,
    Own,
    World,
    is_told_apart,
)
from policies.horizon.playing import Later
from policies.horizon.settings import HorizonSettings
from policies.mapa.family import Mapa
from policies.mapa.question import MapaQuestion, longer
from policies.matching.choice import Choice

#: The end of a reason where what comes decided, or where that may not be told from what did.
WITH_OTHERS = ", chosen with the next jobs in mind"
#: Nodes that are compared: mapa's own and the next best ones unlike it.
MOST_NODES = 3
#: A future has to be better by so much of one job's ideal, else mapa's own choice stands: what
#: comes is never known for sure.
LEAST_GAIN = 0.05
#: Where there are several futures, all are compared by the first ones, the best of them by all.
FIRST_FUTURES, MOST_PLAYED = 1, 3
#: By so much of its run time a job may take longer for the sake of others: what it loses that
#: communicates as usual with 95 % of its own best bandwidth.
GIVEN_UP = USUAL_COMMUNICATION * (1 / 0.95 - 1)
#: A wait has to save so much of the run on the average, and is at most so much of it.
LEAST_SAVED, LONGEST = 0.05, 0.5
#: A wait that may last less (seconds) is none.
LEAST_S = 1.0
#: A wait is no longer than such a part of what it can save at most: what is far away is known
#: least, and where a job communicates less than it is taken to, the wait is for nothing.
AHEAD = 0.3
#: What a future costs in which nothing better comes, as a part of the longest wait: a job is asked
#: about again at each end of another one.
IN_VAIN = 0.3
#: Every part of it.
UNCHANGED = HorizonSettings()


@dataclass(slots=True)
class Played:
    """A node and set, and what comes of it in the futures that were played."""

    node: NodeState
    #: Which one of the node's best sets it is.
    at: int
    own: Own
    #: The sum over the futures.
    worth: float = 0.0
    next_mask: int = 0
    #: Those of the future that was played last.
    at_once: frozenset[int] = frozenset()

    def add(self, future: Future) -> None:
        """Count the same set as it came out in one more future."""
        self.worth += future.worth
        self.next_mask = self.next_mask or future.next_mask
        self.at_once = future.at_once


class Horizon(Mapa):
    """Looks some starts ahead in the real queue."""

    name = "horizon"
    hints = (*Mapa.hints, COMMUNICATION, PROFILE, BATCH)
    looks_at = frozenset({LooksAt.QUEUE, LooksAt.SPREADS})

    settings = HorizonSettings

    def __init__(self, site: Site = UNKNOWN_SITE, settings: HorizonSettings = UNCHANGED) -> None:
        super().__init__()
        self._parts = settings
        self._usual = told_apart(settings.usual_communication)
        self._longest_wait_s = site.longest_wait_s if settings.wait else 0.0
        self._choices = Choices(self.tables, self._objective, settings.hop_weight)
        self._told = Communication(site.spreads, self.tables)

    @classmethod
    def build(cls, settings: HorizonSettings, site: Site) -> Horizon:
        """For the waits that the site allows."""
        return cls(site, settings)

    def place(self, request: Request, cluster: Cluster) -> Placement | Wait:
        """As mapa; or wait for better GPUs where that is expected to end the job sooner."""
        cluster = self._seen(cluster)
        known = self._told.of_request(request, candidates(cluster.nodes).topologies())
        placement, world = self._chosen(request, cluster, known)
        answer = self._or_wait(request, placement)
        if isinstance(answer, Wait):
            return answer
        if known is not None and known.source:
            answer = replace(answer, reason=f"{answer.reason}; {_by(known)}")
        return self._wait(request, cluster, answer, known, world) or answer

    def _share(self, known: KnownShare | None, cluster: Cluster) -> float:
        """What share of its run time a job communicates that feels its links."""
        if known is not None:
            return known.share
        learned = self._learned(cluster)
        return self._usual if learned is None else learned

    def _learned(self, cluster: Cluster) -> float | None:
        """What jobs communicate that do not say, by those that ended.

        It counts where it is less than the usual alone: whoever teaches too little makes jobs pack
        as under best-fit, and who teaches too much would make them wait in vain.
        """
        ahead = cluster.ahead
        if ahead is None or ahead.usual is None or not self._parts.learn:
            return None
        learned = told_apart(ahead.usual)
        return learned if learned < self._usual else None

    def _seen(self, cluster: Cluster) -> Cluster:
        """Without what the site has switched off."""
        ahead, parts = cluster.ahead, self._parts
        if ahead is None or (parts.queue and parts.releases):
            return cluster
        queue = ahead.queue if parts.queue else ()
        releases = ahead.releases if parts.releases else ()
        return replace(cluster, ahead=replace(ahead, queue=queue, releases=releases))

    def _world(
        self,
        cluster: Cluster,
        request: Request,
        nodes: list[NodeState],
        known: KnownShare | None,
        most: int = MOST_GPUS,
    ) -> World:
        guesses = self._parts.guesses and most == MOST_GPUS
        return World(
            self._choices,
            cluster,
            request,
            nodes,
            None if known is None else known.share,
            self._told,
            usual=self._share(None, cluster),
            guesses=guesses,
            users=self._parts.users,
            most=most,
        )

    def _wait(
        self,
        request: Request,
        cluster: Cluster,
        now: Placement,
        known: KnownShare | None,
        world: World | None,
    ) -> Wait | None:
        is_single = len(request.gpus_per_node) == 1
        if cluster.ahead is None or not (is_single and request.sensitive and self._longest_wait_s):
            return None
        share = self._share(known, cluster)
        # What the best GPUs would save at once, as a part of the run.
        most_saved = longer(share, now.utility)
        if most_saved <= LEAST_SAVED:
            return None
        if known is None and request.interactive:
            return None  # somebody may sit there, and nobody said that it gains
        [name] = now.gpus
        node = cluster.nodes[name]
        most = MOST_GPUS if node.topology.gpus <= MOST_GPUS else MOST_GPUS_WAITING
        if not is_told_apart(node.topology, most):
            return None
        world = world or self._world(cluster, request, [node], known, most)
        among = [
            one.name for one in world.nodes if one.name in cluster.nodes and _is_as_good(one, node)
        ]
        runs_s, waited_s = world.runs_s(), cluster.ahead.waited_s
        in_all_s = min(self._longest_wait_s, min(LONGEST, AHEAD * most_saved) * runs_s)
        longest_s = min(in_all_s - waited_s, world.window_s(name))
        if longest_s < LEAST_S:
            return None
        # Elsewhere, too, those before it keep their turn.
        among = [one for one in among if world.window_s(one) >= longest_s]
        played = [
            world.later(share, now.utility, among, longest_s, future)
            for future in range(world.futures)
        ]
        better = [one for one in played if one is not None and one.saved_s > 0]
        # Where nothing better comes the job has waited for nothing.
        in_vain_s = IN_VAIN * longest_s * (len(played) - len(better))
        saved_s = (sum(one.saved_s for one in better) - in_vain_s) / len(played)
        if saved_s <= LEAST_SAVED * runs_s:
            return None
        said = _said(world, better, len(played), now.utility, is_private=cluster.ahead.is_private)
        is_learned = self._learned(cluster) is not None
        return Wait(
            f"{said}{_told(share, known, is_learned=is_learned)}", waited_s + longest_s, now
        )

    def _chosen(
        self, request: Request, cluster: Cluster, known: KnownShare | None
    ) -> tuple[Placement, World | None]:
        """What the job gets now, and what was played for it, if that was."""
        asked = self._asked(request, cluster, self._share(known, cluster))
        pairs = asked.chosen()
        state, count, _ = pairs[0]
        # Who chose tells whether others wait.
        is_private = cluster.ahead is not None and cluster.ahead.is_private
        own = partial(asked.placement, self.name, pairs, WITH_OTHERS if is_private else "")
        is_played = cluster.ahead is not None and cluster.ahead.queue and len(pairs) == 1
        # Who asks for the emptiest nodes gets them, and leaves others full on purpose.
        is_played = is_played and request.options.get("spread") != "yes"
        if not (is_played and is_told_apart(state.topology)):
            return own(), None
        others = asked.runners_up(count, {state.name})[: MOST_NODES - 1]
        nodes = [
            state,
            *(
                other
                for other in others
                if _is_no_slower(other, state) and is_told_apart(other.topology)
            ),
        ]
        world = self._world(cluster, request, nodes, known)
        best = _best(world, asked, nodes, request)
        if best is None:
            return own(), world
        node, choice, future = best
        placement = asked.placement(self.name, [(node, count, choice)], WITH_OTHERS)
        if is_private:
            return placement, world
        return future.explained(placement, node.free & ~choice.mask), world


def _is_as_good(other: NodeState, node: NodeState) -> bool:
    """Whether a job may wait for it instead: its like, whatever is broken on either."""
    kind, own = (one.topology.healthy or one.topology for one in (other, node))
    is_slower = other.topology.lag_tenths > node.topology.lag_tenths
    return other.weight <= node.weight and kind.shape == own.shape and not is_slower


def _is_no_slower(other: NodeState, node: NodeState) -> bool:
    """Whether the site wants it as much, and no power cap makes it the slower one."""
    return other.weight == node.weight and other.topology.lag_tenths <= node.topology.lag_tenths


def _best(
    world: World, asked: MapaQuestion, nodes: list[NodeState], request: Request
) -> tuple[NodeState, Choice, Future] | None:
    """The node and set with the best future; None where that is mapa's own, the first.

    Of those only with which all jobs start at once that would with mapa's own, as far as is seen: a
    better set for one makes up for no wait of another.
    """
    [count] = request.gpus_per_node
    own, *others = [
        Played(node, at, own) for node in nodes for at, own in enumerate(world.sets(node, count))
    ]
    if own.own.share < request.min_utility:
        return None
    most = max(one.own.share for one in (own, *others))
    communication = asked.communication if count > 1 else 0.0

    def is_good(share: float) -> bool:
        return share >= request.min_utility and longer(communication, share, most) <= GIVEN_UP

    played = [own, *(one for one in others if is_good(one.own.share))]
    if len(played) == 1:
        return None
    for future in range(world.futures):
        if future == FIRST_FUTURES:
            # Those that are behind in some are hardly the best in all.
            ahead = sorted(
                (one for one in played if one.worth > own.worth), key=lambda one: -one.worth
            )
            if not ahead:
                return None
            played = [own, *ahead[: MOST_PLAYED - 1]]
        for one in played:
            one.add(world.play(one.node, count, one.own, future))
        if future == 0:
            played = [one for one in played if one.at_once >= own.at_once]
    best = max(played, key=lambda one: one.worth)
    if best.worth <= own.worth + LEAST_GAIN * world.futures:
        return None
    choice = asked.top(best.node, count)[best.at]
    return best.node, choice, Future(best.worth, best.next_mask)


def _by(known: KnownShare) -> str:
    return f"communicates for {100 * known.share:.0f} % of its time by {known.source}"


def _told(share: float, known: KnownShare | None, *, is_learned: bool) -> str:
    """By what it was weighed, where the job's own hint does not say."""
    if known is not None:
        return f"; {_by(known)}" if known.source else ""
    low, high = (f"{100 * one:.0f}" for one in USUALLY)
    by = "as earlier jobs here show" if is_learned else f"{low} to {high} usual"
    return f"; communication unknown, {100 * share:.0f} % of its time taken ({by})"


def _said(world: World, better: list[Later], played: int, share: float, *, is_private: bool) -> str:
    """Why the job waits; where that is private, not which GPUs come free, nor when."""
    first = better[0]
    node = world.nodes[first.node].name
    low, high = (pick(one.saved_s for one in better) for pick in (min, max))
    saved = f"{low:,.0f} s" if len(better) == 1 else f"{low:,.0f} to {high:,.0f} s"
    saved += "" if len(better) == played else f" in {len(better)} of {played} guesses"
    shares = f"{100 * first.share:.0f} % of the best GPUs' bandwidth, now {100 * share:.0f} %"
    if is_private:
        return f"better GPUs are expected: {shares}; ends sooner with them"
    gpus = ",".join(map(str, gpus_of(first.mask)))
    when = f"GPUs {gpus} of {node} are expected in {first.in_s:.0f} s"
    return f"{when}: {shares}; ends {saved} sooner"
