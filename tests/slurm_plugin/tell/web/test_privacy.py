"""Users see their own jobs in full and of others' that GPUs are busy; operators see everything."""

import json
from dataclasses import replace

import pytest
from web_in_tests import ALICE, BOB, NOW, SCRIPT, Site, asked, node, played, running, seen

from slurm_plugin.base.job_notes.loan import Loan, LoanDonor
from slurm_plugin.base.job_notes.records import LoanRecord

OTHERS = ("bob", "bobs-secret", "gres/gpu:2", '"7"', "job 7", "job 10", '"10"')


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


@pytest.mark.parametrize("path", ["/api/state", "/api/job/9", "/api/job/8", "/api/node/dgx1",
                                  "/api/gain"])  # fmt: skip
def test_no_answer_to_a_user_tells_of_other_users_jobs(site, path):
    [(status, text, _)] = asked(site.as_user(ALICE), path)
    assert status == 200
    assert not [word for word in OTHERS if word in text], text


def test_own_jobs_are_told_in_full(site):
    site.slurm.jobs[1] = replace(site.slurm.jobs[1], job_name=SCRIPT, end=int(NOW) + 90)
    jobs = seen(site, ALICE)["jobs"]
    assert set(jobs) == {"8", "9"}
    assert (jobs["8"]["job_name"], jobs["8"]["end"]) == (SCRIPT, NOW + 90)
    assert jobs["8"]["gpus"] == {"dgx2": [0, 1, 2, 3, 4]}
    # Bob's job of a higher priority is before it, and counts.
    assert jobs["9"]["place"] == 2
    why = seen(site, ALICE, "/api/job/9")["why"]
    assert "another user's job comes first" in why["sentence"]


def test_what_is_busy_is_told_without_by_whom(site):
    found = seen(site, ALICE)
    assert found["nodes"]["dgx1"]["gpus"] == "bssbssss"
    assert (found["figures"]["running"], found["figures"]["waiting"]) == (2, 2)
    [picture] = seen(site, ALICE, "/api/node/dgx1")["pictures"]
    assert "busy holds 0, 3" in picture["svg"]


def test_operators_see_everything(site):
    found = seen(site, 0)
    assert set(found["jobs"]) == {"7", "8", "9", "10"}
    assert found["jobs"]["7"]["utility"] == 1.0
    detail = seen(site, 0, "/api/job/7")
    assert detail["ranks"] == [["dgx1", 3], ["dgx1", 0]]
    assert "own choice: 0, 1" in detail["pictures"][0]["svg"]
    why = seen(site, 0, "/api/job/9")["why"]
    assert "job 10 of bob comes first" in why["sentence"]


def test_the_page_names_the_list_by_what_it_shows(site):
    [(_, mine, _)] = asked(site.as_user(ALICE), "/")
    [(_, all_of_them, _)] = asked(site.as_user(0), "/")
    assert "My jobs" in mine
    assert "data-operator" not in mine
    assert "My jobs" not in all_of_them
    assert "<body data-operator>" in all_of_them


@pytest.mark.parametrize("job", [7, 10, 999])
def test_another_users_job_and_none_get_the_same_answer(site, job):
    [(status, text, _)] = asked(site.as_user(ALICE), f"/api/job/{job}")
    assert (status, text) == (404, f"job {job}: none that you may see\n")


def test_decisions_are_of_own_jobs(site):
    assert seen(site, ALICE)["decisions"] == {}
    [row] = seen(site, BOB)["decisions"].values()
    assert (row["job"], row["gbps"], row["slurm_gbps"]) == (7, 39.1, 21.6)


def test_texts_of_users_go_out_as_json_and_in_no_markup(tmp_path):
    slurm = played()
    slurm.jobs[1] = running(8, ALICE, {"dgx2": (0, 1)}, comment=SCRIPT, name=f"8_{SCRIPT}")
    site = Site(tmp_path, slurm)
    page, state, detail = asked(site.as_user(ALICE), "/", "/api/state", "/api/node/dgx2")
    assert "<script>alert" not in page[1]
    for _, text, headers in (state, detail):
        assert headers["Content-Type"].startswith("application/json")
        assert headers["X-Content-Type-Options"] == "nosniff"
        json.loads(text)
    for picture in json.loads(detail[1])["pictures"]:
        assert "<script" not in picture["svg"]
        assert "<img" not in picture["svg"]


def test_a_loan_is_drawn_with_both_nodes(tmp_path):
    slurm = played()
    loan = Loan("dgx1", 0b11, (LoanDonor("dgx2", 0b110, 31),))
    record = LoanRecord("starts", {"remote": "1", "loan": loan.text()})
    slurm.jobs[1] = running(8, ALICE, {"dgx1": (0, 1)}, admin_comment=record.text())
    detail = seen(Site(tmp_path, slurm), ALICE, "/api/job/8")
    titles = [picture["title"] for picture in detail["pictures"]]
    assert titles == ["job 8 on dgx1", "dgx2 lends to job 8 by job 31"]
    assert "ranks on 1, 2" in detail["pictures"][1]["svg"]


def test_a_node_without_a_known_topology_is_told_so(tmp_path):
    slurm = played()
    slurm.nodes_.append(node("new1"))
    found = seen(Site(tmp_path, slurm), ALICE, "/api/node/new1")
    assert found["pictures"] == []
    assert "gputopo.yaml" in found["problem"]
