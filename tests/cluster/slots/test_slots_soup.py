"""Every kind of job with slots under many configurations: they cost neither it nor anybody else."""

import pytest
from soup_harness import SEED, soup_of

pytestmark = [pytest.mark.cluster, pytest.mark.slots]


@pytest.mark.long("two minutes for each configuration")
@pytest.mark.parametrize("nth", [0, 1, 4], ids="site {}".format)
def test_slots_are_harmless(cluster, nth):
    soup = soup_of(cluster, SEED + nth, "--comment=gpu-topo: policy=mapa")
    soup.cook(40)
    assert not soup.found, "\n".join(soup.found)
    assert soup.seen["elsewhere"] > 3, soup.seen
