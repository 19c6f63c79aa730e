"""`gputopo doctor` while the engine has not heard from Slurm who is in charge."""

import time

import pytest
from played_site import PlayedSite

NOT_SAID = {
    "is_ours": False,
    "is_doubtful": True,
    "why": "Slurm has not said yet which controllers there are",
    "controllers": [],
}


def just_started(site: PlayedSite, which: str) -> None:
    """slurmctld was restarted, or the engine; the other one is up for an hour."""
    site.slurm.values["BOOT_TIME"] = str(int(time.time()) - (1 if which == "slurmctld" else 3600))
    site.status["charge"] = NOT_SAID | {"since_s": 1.0 if which == "engine" else 3600.0}


@pytest.mark.parametrize("which", ["engine", "slurmctld"])
def test_just_after_a_start_doctor_waits_until_the_engine_knows_who_is_in_charge(
    site, monkeypatch, which
):
    """As docs/packages.md has it: slurmctld is restarted, and doctor asked in the same moment."""
    known = site.status["charge"]
    just_started(site, which)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            site.status["charge"] = known

    monkeypatch.setattr(time, "sleep", sleep)
    assert site.wrong() == []
    assert len(waits) == 3


def test_what_the_engine_cannot_know_yet_is_no_fault(site, monkeypatch):
    """Slurm takes its time with the engine's question, which it has answered doctor."""
    monkeypatch.setattr("slurm_plugin.doctor.engine.PATIENCE_S", 0.0)
    just_started(site, "engine")
    assert site.only("in charge", "warn").text.startswith("not known yet: Slurm has not said")


def test_an_engine_to_which_slurm_says_nothing_is_a_fault_in_the_end(site, monkeypatch):
    """It asks in vain for long, and slurmctld has long been up: nothing is waited for."""
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("waits"))
    just_started(site, "neither")
    assert site.only("in charge").text.startswith("the engine changes nothing in Slurm: Slurm has")
