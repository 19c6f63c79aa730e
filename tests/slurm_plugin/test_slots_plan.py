"""One look at the queue: whose gate opens, whose is renewed, what is repaired."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_plugin.protocol import Submit
from slurm_plugin.slots import bracket
from slurm_plugin.slots.candidates import Group, Need
from slurm_plugin.slots.names import lowest
from slurm_plugin.slots.plan import WAIT, Clock, Plan, plan
from slurm_plugin.slots.room import Node
from slurm_plugin.slurm.interface import NOW, QueuedJob

V100 = tuple(f"v100.s{i}" for i in range(8))
CLOCK = Clock(now=1000, lease_s=120, grace_s=30)


def gated(job_id: int, gpus: int = 2, *, keys: str = "", **more: object) -> QueuedJob:
    words = f"token=t{job_id} tpn=gres/gpu:{gpus} nodes=1-1 by=node {keys}".strip()
    values: dict[str, object] = {
        "name": str(job_id), "partition": "batch", "state": "PENDING", "reason": "BeginTime",
        "priority": 100 - job_id, "eligible": 1100, "time_limit_s": 60, "cpus": 1,
        "tres_per_node": f"gres/gpu:{gpus}", "admin_comment": f"[gpu-slots: gated {words}]",
    }  # fmt: skip
    return QueuedJob(job_id, **{**values, **more})  # type: ignore[arg-type]


def placed(job_id: int, at: int, slots: str) -> QueuedJob:
    comment = f"[gpu-slots: placed token=t tpn=gres/gpu:2 nodes=1-1 by=node at={at}]"
    return gated(job_id, admin_comment=comment, tres_per_node=slots, req_nodes="dgx1")


def first_choice(
    job: QueuedJob, asked: Submit, need: Need, found: Sequence[Group]
) -> tuple[Group, int]:
    return found[0], lowest(found[0].free, need.gpus)


def planned(*jobs: QueuedJob, free: int = 0xFF) -> Plan:
    node = Node("dgx1", V100, free, 40, 1000, partitions=frozenset({"batch"}))
    return plan(jobs, {"dgx1": node}, {}, CLOCK, first_choice)


def test_gates_open_in_slurms_order_while_there_is_room() -> None:
    made = planned(gated(3, 4), gated(2, 4), gated(1, 4))
    assert [name for name, _ in made.releases] == ["1", "2"]
    assert made.first == Need(4, 1, 1, partitions=frozenset({"batch"}))


def test_a_release_names_exact_slots_and_opens_the_gate() -> None:
    [(_, update)] = planned(gated(1), free=0b11000).releases
    assert update.tres_per_node == "gres/gpu:v100.s3:1,gres/gpu:v100.s4:1"
    assert (update.begin_time, update.req_nodes, update.num_nodes) == (NOW, "dgx1", (1, 1))
    kept = bracket.read(update.admin_comment or "")
    assert kept is not None
    assert (kept.state, kept.get("tpn"), kept.get("at")) == ("placed", "gres/gpu:2", "1000")


def test_a_lower_job_passes_the_first_only_if_it_ends_before_that_one_could_start() -> None:
    running = QueuedJob(
        9, state="RUNNING", nodes=("dgx1",), gpus={"dgx1": (0, 1)}, end=1100, cpus=1
    )
    short, long = gated(2, time_limit_s=100), gated(3, time_limit_s=101)
    made = planned(running, gated(1, 8), short, long, free=0xFC)
    assert [name for name, _ in made.releases] == ["2"]


def test_held_dependent_and_later_jobs_stay_behind_their_gates_and_block_nobody() -> None:
    made = planned(
        gated(1, 8, priority=0),
        gated(2, 8, depends=True),
        gated(3, 8, keys="begin=2000"),
        gated(4, 8),
    )
    assert [name for name, _ in made.releases] == ["4"]


def test_a_gate_is_renewed_at_half_its_lease() -> None:
    made = planned(gated(1, eligible=1059), gated(2, eligible=1061), free=0)
    assert made.renew == ["1"]


def test_a_released_job_keeps_its_slots_until_it_starts() -> None:
    made = planned(placed(1, 990, "gres/gpu:v100.s0:1,gres/gpu:v100.s3:1"), gated(2, 2))
    [(_, update)] = made.releases
    assert update.tres_per_node == "gres/gpu:v100.s1:1,gres/gpu:v100.s2:1"
    assert not made.restores


def test_a_release_that_did_not_start_in_time_is_gated_again_with_its_own_request() -> None:
    made = planned(placed(1, 960, "gres/gpu:v100.s0:1,gres/gpu:v100.s3:1"))
    [(name, update)] = made.restores
    kept = bracket.read(update.admin_comment or "")
    assert (name, update.begin_time, update.tres_per_node) == ("1", 1120, "gres/gpu:2")
    assert (update.req_nodes, update.num_nodes) == ("", (1, 1))
    assert kept is not None
    assert kept.state == "gated"


def test_a_release_that_did_not_take_is_gated_again_at_once() -> None:
    assert [name for name, _ in planned(placed(1, 999, "gres/gpu:2")).restores] == ["1"]


def test_a_job_no_node_can_ever_serve_is_slurms_own() -> None:
    [(_, update)] = planned(gated(1, 9)).restores
    assert (update.begin_time, update.admin_comment) == (NOW, "")


def test_a_job_the_policy_lets_wait_keeps_its_place() -> None:
    node = Node("dgx1", V100, 0xFF, 40, 1000, partitions=frozenset({"batch"}))

    def choose(
        job: QueuedJob, asked: Submit, need: Need, found: Sequence[Group]
    ) -> tuple[Group, int] | str:
        return WAIT if job.job_id == 1 else first_choice(job, asked, need, found)

    made = plan([gated(1, 8), gated(2)], {"dgx1": node}, {}, CLOCK, choose)
    assert not made.releases
    assert made.first is not None
