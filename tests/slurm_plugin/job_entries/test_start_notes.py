"""What was said of jobs at their start, and updates by readings from before that."""

import pytest
from entries_in_tests import NOW, Site, gated

from slurm_plugin.job_notes import hints
from slurm_plugin.slurm.interface import JobUpdate

WAITS = f"waiting 1/10 since 5: genie: x (until {NOW + 60}, begin 5)"


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("notes", [True, False])
def test_a_wait_that_began_since_the_job_was_read_is_not_taken_away(notes, is_read):
    """Slurm put the job off; the loop that shapes it saw it before that and changes its request."""
    hint = "[gpu-topo: policy=genie]"
    site = Site(gated(comment=hint), notes=notes).looked()
    site.store.start_notes.add(7, "policy=genie", WAITS)
    if notes:
        site.slurm.write(7, hints.with_note(hint, WAITS))
    if is_read:
        site.seen()
    site.client.update(["7"], JobUpdate(admin_comment=hints.with_note(hint, "shape 1x2")))
    assert site.seen() == hints.with_note(hint, WAITS)
    # Another begin time ends the wait.
    site.client.update(["7"], JobUpdate(begin_time=0))
    site.client.update(["7"], JobUpdate(admin_comment=hints.with_note(hint, "shape 1x2")))
    assert site.seen() == hints.with_note(hint, "shape 1x2")


@pytest.mark.parametrize(
    ("until", "state"), [(NOW - 1, "PENDING"), (NOW + 60, "RUNNING")], ids=["passed", "runs"]
)
def test_a_wait_that_is_over_stands_in_no_update(until, state):
    hint = "[gpu-topo: policy=genie]"
    site = Site(gated(comment=hint, state=state)).looked()
    site.store.start_notes.add(7, "policy=genie", WAITS.replace(str(NOW + 60), str(until)))
    site.client.update(["7"], JobUpdate(admin_comment=hints.with_note(hint, "shape 1x2")))
    assert site.slurm.of(7) == hints.with_note(hint, "shape 1x2")
