"""Every kind of job with slots under many configurations: they cost neither it nor anybody else."""

import pytest
from soup_harness import SEED, soup_of

pytestmark = [pytest.mark.cluster, pytest.mark.slots]

#: What nobody tells the engine of (docs/slots.md), where it makes a difference.
UNTOLD = ("--oversubscribe", "--overcommit")


@pytest.mark.long("two minutes for each configuration")
@pytest.mark.parametrize("nth", [0, 11, 20], ids="site {}".format)
def test_slots_are_harmless(cluster, nth):
    """Where partitions preempt, share cores or close nodes jobs are Slurm's own; not here."""
    soup = soup_of(cluster, SEED + nth, "--comment=gpu-topo: policy=mapa", without=UNTOLD)
    soup.cook(40)
    assert not soup.found, "\n".join(soup.found)
    assert soup.seen["elsewhere"] > 2, soup.seen
