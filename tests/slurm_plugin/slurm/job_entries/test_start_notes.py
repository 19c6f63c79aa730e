"""What was said of jobs at their start, and updates by readings from before that."""

import pytest
from entries_in_tests import JS1, NOW, Site, gated

from slurm_plugin.base.job_notes import hints
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


@pytest.mark.parametrize(("eligible", "is_seen"), [(NOW + 60, True), (NOW + 61, True), (5, False)])
def test_a_wait_that_a_reading_shows_is_ours_though_others_took_its_note(eligible, is_seen):
    """It began after the reading had, and before Slurm answered; else it is its user's --begin."""
    hint = "[gpu-topo: policy=genie]"
    site = Site(gated(comment=hint, eligible=5)).looked()

    def postponed() -> None:
        site.slurm.meanwhile = lambda: None
        site.store.start_notes.add(7, "policy=genie", WAITS)

    site.slurm.write(7, JS1, eligible=eligible)
    site.slurm.meanwhile = postponed
    assert (hints.postponed_until(site.seen()) == NOW + 60) == is_seen
    # What was put back meanwhile has no note on the wait.
    site.slurm.write(7, site.slurm.of(7), eligible=NOW + 60)
    assert hints.postponed_until(site.seen()) == NOW + 60


def test_a_jobs_hint_is_known_while_others_write_its_comment():
    """It may be about to start just then, and would be placed as one that said nothing."""
    site = Site(gated(comment=f"{JS1} [gpu-topo: pattern=tree | dgx1:0,1]")).looked()
    for written in ("", JS1, "see [1"):
        site.slurm.write(7, written)
        assert site.store.hint_of(7, 0, 1000) == "pattern=tree"
        site.seen()
        assert site.store.hint_of(7, 0, 1000) == "pattern=tree"
    assert site.store.hint_of(70, 7, 1000) == "pattern=tree"  # a task of the array
    assert site.store.hint_of(7, 0, 1001) == site.store.hint_of(8, 0, 1000) == ""


def test_a_hint_that_its_user_took_back_is_known_no_more():
    """The bridge leaves an empty bracket."""
    site = Site(gated(comment="[gpu-topo: pattern=tree]")).looked()
    site.slurm.write(7, "[gpu-topo:]")
    site.seen()
    assert site.store.hint_of(7, 0, 1000) == ""
