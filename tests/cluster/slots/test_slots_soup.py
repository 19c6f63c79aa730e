"""Every kind of job with slots under many configurations: they cost neither it nor anybody else."""

import re
from dataclasses import replace

import pytest
from soup_harness import JOBS, SEED, SITES, Soup, soup_of
from soup_requests import LIVES

pytestmark = [pytest.mark.cluster, pytest.mark.slots]

MAPA = "--comment=gpu-topo: policy=mapa"
#: What nobody tells the engine of (docs/slots.md), where it makes a difference.
UNTOLD = ("--oversubscribe", "--overcommit")
#: With slots CPUs per GPU are asked for as CPUs per task.
BY_TASK = ("CPUs/Task",)
#: Under these most jobs are Slurm's own.
SLURMS = re.compile(r"(OverSubscribe|ExclusiveUser|PreemptType|PreemptMode|DefCpuPerGPU)=\S+")


@pytest.mark.long("two minutes for each configuration")
@pytest.mark.parametrize(
    ("nth", "most_placed"), [(0, True), (11, True), (20, True), (1, False)], ids=str
)
def test_slots_are_harmless(cluster, nth, most_placed):
    soup = soup_of(cluster, SEED + nth, MAPA, without=UNTOLD, ignored=BY_TASK)
    if most_placed:
        place_most(soup)
    soup.cook(40, elsewhere=4 if most_placed else 0)
    assert not soup.found, "\n".join(soup.found)
    assert not most_placed or soup.seen["elsewhere"] >= 4, soup.seen


@pytest.mark.long("five minutes for each configuration")
@pytest.mark.timeout(60 + 20 * JOBS)
@pytest.mark.parametrize("nth", range(SITES), ids="site {}".format)
def test_whatever_becomes_of_a_job_slots_are_harmless(cluster, nth):
    """Arrays, heterogeneous jobs, those that are held, changed, suspended, requeued, drained."""
    soup = soup_of(cluster, SEED + 100 + nth, MAPA, without=UNTOLD, ignored=BY_TASK, lives=LIVES)
    place_most(soup)
    least = JOBS // 20 + 1
    soup.cook(JOBS, elsewhere=least)
    assert not soup.found, "\n".join(soup.found)
    assert soup.seen["elsewhere"] >= least, soup.seen


def place_most(soup: Soup) -> None:
    """The site is one on which few jobs are Slurm's own."""
    soup.site = replace(soup.site, slurm_conf=SLURMS.sub("", soup.site.slurm_conf))
