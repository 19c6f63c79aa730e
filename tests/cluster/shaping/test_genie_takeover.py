"""policy=genie beside a backup controller: the plan goes on by the other engine, and back."""

import pytest
from live_harness import CONFIG
from standby_harness import SHARED, answered, in_charge, sharing, two_engines

from tests.cluster.shaping.genie_site import DATABASE, goes_as_simulated

pytestmark = [pytest.mark.cluster, pytest.mark.both_modes, pytest.mark.enforced]


@pytest.mark.usefixtures("reshapes")
@pytest.mark.long("a takeover after more than a minute, and another one back")
@pytest.mark.timeout(900)
def test_a_queue_goes_on_as_in_the_simulator_across_takeovers(shaping):
    """The other controller's engine goes on with the plan: no job is lost, none gets another shape.

    Then the first one again; what each knows of jobs that run and wait is from Slurm's records.
    """

    def before(ended: int) -> str:
        if ended == 3:
            shaping.saved()
            shaping.slurmctld("kill")
            shaping.engine("kill")
        elif ended == 6:
            shaping.engine("start")
            shaping.slurmctld("start")
        host = "ctl2" if 3 <= ended < 6 else "ctl"
        if ended in (3, 6):
            answered(shaping)
            in_charge(shaping, host)
        return host

    with sharing(shaping):
        both = f"{SHARED}/performance.db"
        shaping.run("ctl", f"install -o slurm -m 640 {DATABASE} {both}")
        shaping.run("ctl", ["sed", "-i", f"s#{DATABASE}#{both}#", CONFIG])
        shaping.engine("restart")
        with two_engines(shaping):
            goes_as_simulated(shaping, before=before)
