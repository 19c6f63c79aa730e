"""The steps of a loan's start, read in slurmctld's log."""

import pytest

from bench.live.placed.loan_start import steps_of

LOG = """\
[2026-11-26T02:00:01.000] _slurm_rpc_submit_batch_job: JobId=7 InitPrio=1 usec=400
[2026-11-26T02:00:01.100] _slurm_rpc_submit_batch_job: JobId=8 InitPrio=1 usec=400
[2026-11-26T02:00:01.200] sched: _update_job: setting tres_per_node:gres/gpu:v100.s0:1 for JobId=8
[2026-11-26T02:00:02.000] sched: Allocate JobId=8 NodeList=dgx2 #CPUs=2 Partition=dgx
[2026-11-26T02:00:02.250] _update_job: setting comment to gpu-donor ready of=7 port=50 for JobId=8
[2026-11-26T02:00:02.500] sched: _update_job: setting {} for JobId=7
[2026-11-26T02:00:03.500] sched/backfill: _start_job: Started JobId=7 in dgx on dgx1
"""


@pytest.mark.parametrize(
    "said",
    [
        "tres_per_node:gres/gpu:2",
        "tres_per_job: tres_per_node:gres/gpu:v100.s6:1,gres/gpu:v100.s7:1 tres_per_task:",
    ],
    ids=["select", "slots"],
)
def test_each_step_lasts_from_one_line_to_the_next(said):
    assert steps_of(7, LOG.format(said)) == [0.1, 0.9, 0.25, 0.25, 1.0]


def test_a_line_that_is_not_there_is_named():
    with pytest.raises(ValueError, match=r"setting \.\*tres_per_node"):
        steps_of(7, LOG.format("time_limit to 5"))
    with pytest.raises(ValueError, match="knows no donor of job 9"):
        steps_of(9, LOG.format(""))
