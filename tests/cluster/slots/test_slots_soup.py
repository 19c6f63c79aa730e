"""Every kind of job with slots under many configurations: they cost neither it nor anybody else."""

import re
from dataclasses import replace

import pytest
from soup_harness import SEED, soup_of

pytestmark = [pytest.mark.cluster, pytest.mark.slots]

#: What nobody tells the engine of (docs/slots.md), where it makes a difference.
UNTOLD = ("--oversubscribe", "--overcommit")
#: Under these most jobs are Slurm's own.
SLURMS = re.compile(r"(OverSubscribe|ExclusiveUser|PreemptType|PreemptMode)=\S+")


@pytest.mark.long("two minutes for each configuration")
@pytest.mark.parametrize(
    ("nth", "most_placed"), [(0, True), (11, True), (20, True), (1, False)], ids=str
)
def test_slots_are_harmless(cluster, nth, most_placed):
    soup = soup_of(cluster, SEED + nth, "--comment=gpu-topo: policy=mapa", without=UNTOLD)
    if most_placed:
        conf = SLURMS.sub("", soup.site.slurm_conf)
        soup.site = replace(soup.site, slurm_conf=conf)
    soup.cook(40)
    assert not soup.found, "\n".join(soup.found)
    assert not most_placed or soup.seen["elsewhere"] > 5, soup.seen
