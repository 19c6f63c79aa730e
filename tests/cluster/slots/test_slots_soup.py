"""Every kind of job with slots under many configurations: they cost neither it nor anybody else."""

import re
from dataclasses import replace

import pytest
from soup_harness import SEED, soup_of

pytestmark = [pytest.mark.cluster, pytest.mark.slots]

#: What nobody tells the engine of (docs/slots.md), where it makes a difference.
UNTOLD = ("--oversubscribe", "--overcommit")
#: With slots CPUs per GPU are asked for as CPUs per task.
BY_TASK = ("CPUs/Task",)
#: Under these most jobs are Slurm's own.
SLURMS = re.compile(r"(OverSubscribe|ExclusiveUser|PreemptType|PreemptMode)=\S+")


@pytest.mark.long("two minutes for each configuration")
@pytest.mark.parametrize(
    ("nth", "most_placed"), [(0, True), (11, True), (20, True), (1, False)], ids=str
)
def test_slots_are_harmless(cluster, nth, most_placed):
    mapa = "--comment=gpu-topo: policy=mapa"
    soup = soup_of(cluster, SEED + nth, mapa, without=UNTOLD, ignored=BY_TASK)
    if most_placed:
        conf = SLURMS.sub("", soup.site.slurm_conf)
        soup.site = replace(soup.site, slurm_conf=conf)
    soup.cook(40)
    assert not soup.found, "\n".join(soup.found)
    assert not most_placed or soup.seen["elsewhere"] > 5, soup.seen
