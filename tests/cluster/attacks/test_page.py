"""The page's process, on loopback, where one user means others no good."""

import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "slurm_plugin"))

from page_process import ALICE, BOB, CAROL, page, write_log

from slurm_cluster.hosts import until
from slurm_plugin.tell.web.clients.guard import MAX_CONNECTIONS

#: Seconds within which alice has her job's page, on whatever machine, where the page alone needs
#: some hundredths of one and once needed minutes.
WAIT_S = 40.0
#: What one user may have open.
SHARE = 64
ALICES, BOBS = 8, 7


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A log of five files, which take a second to be read from end to end."""
    folder = tmp_path_factory.mktemp("page")
    write_log(folder, 5, 24, {ALICES: 2000 + ALICE, BOBS: 2000 + BOB})
    return folder


@pytest.mark.parametrize("hangs_up", [False, True], ids=["connected", "hung up"])
def test_many_questions_of_one_user_hold_up_nobody_else(folder, hangs_up):
    with page(folder) as running:
        running.asked(f"/api/job/{ALICES}", ALICE)
        clients = running.connected(BOB, 400, f"/api/job/{BOBS}")
        if hangs_up:
            clients.close()
        status, body, took_s = running.asked(f"/api/job/{ALICES}", ALICE, 120)
        clients.close()
        assert (status, took_s < WAIT_S) == (200, True), took_s
        assert b"39.1 GB/s" in body


def test_one_user_has_no_more_connections_than_their_share(folder):
    """Whether idle or waiting for an answer."""
    with page(folder, stuck=60) as running:
        before = running.connections()
        with running.connected(BOB, 300, f"/api/job/{BOBS}"), running.connected(BOB, 300):
            running.asked("/api/state", ALICE)
            until(lambda: running.connections() <= SHARE + before + 1, "the others closed", 30)
            assert running.asked("/api/state", ALICE)[0] == 200


def test_all_users_together_have_no_more_connections_than_there_may_be(folder):
    """And a user who comes later gets in: who has most gives one up."""
    with page(folder, stuck=60, most=80) as running:
        before = running.connections()
        path = f"/api/job/{BOBS}"
        with running.connected(BOB, 60, path), running.connected(CAROL, 60, path):
            assert running.asked("/api/state", ALICE)[0] == 200
            assert running.connections() <= 80 + before + 1


def test_the_end_of_the_process_waits_for_no_question(folder):
    with page(folder, stuck=120) as running:
        with running.connected(BOB, 40, f"/api/job/{BOBS}"):
            running.asked("/api/state", ALICE)
            # The questions hang in their threads by now, or wait for one.
            time.sleep(0.5)
            # Two seconds on a machine with nothing else to do.
            assert running.ended_s() < WAIT_S
        assert running.process.returncode == 0


def test_the_share_of_a_user_is_a_small_part_of_all():
    assert MAX_CONNECTIONS >= 10 * SHARE
