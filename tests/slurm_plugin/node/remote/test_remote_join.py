"""A job meets its donors before its first process: whom it looks for, what its tasks are told."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from paper_donor import COMMENT
from paper_munge import PaperMunge

from slurm_plugin.base.job_notes.loan import LoanDonor
from slurm_plugin.errors import RemoteError
from slurm_plugin.node.remote import join, slurm
from slurm_plugin.node.remote.door import Tools
from slurm_plugin.node.remote.join import Ends


def test_the_donors_of_a_job_stand_in_its_admin_comment():
    assert join.donors_in(COMMENT.format(port=5000)) == [LoanDonor("dgx2", 0b110, 71, 5000)]
    assert join.donors_in(COMMENT.replace("placed", "gated").format(port=5000)) == []
    assert join.donors_in("") == []
    with pytest.raises(RemoteError, match="is no donor"):
        join.donors_in(COMMENT.format(port="x"))


async def test_the_jobs_end_goes_when_the_step_has_gone():
    ended = await asyncio.create_subprocess_exec("true")
    await ended.wait()
    await asyncio.wait_for(join.keep(Ends(Tools(Path())), PaperMunge(), ended.pid), 5)


def test_what_slurmstepd_reads_from_the_task_prolog():
    text = join.exports({"A": "1", "B": "x,y"})
    assert text.splitlines()[:2] == ["export A=1", "export B=x,y"]
    assert "unset SLURM_GPUS_PER_NODE" in text


def scontrol(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """This script is `scontrol` from now on."""
    path = folder / "scontrol"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_slurm_tells_the_state_of_a_job_and_what_the_engine_wrote_or_nothing(tmp_path, monkeypatch):
    script = (
        'case "$3" in 1) printf "J=1\\n   JobState=RUNNING Reason=x\\n   AdminComment=[a b]\\n" ;;'
        ' 2) echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1 ;;'
        " *) echo down >&2; exit 1 ;; esac"
    )
    scontrol(tmp_path, monkeypatch, script)
    assert [slurm.job_state(n) for n in (1, 2, 3)] == [("RUNNING", "[a b]"), ("", ""), None]


@pytest.mark.parametrize(
    ("word", "state"),
    [("REQUEUE_HOLD", "PENDING"), ("CANCELLED", ""), ("STAGE_OUT", ""), ("STOPPED", "RUNNING")],
)
def test_the_nodes_read_slurms_words_as_the_engine_does(tmp_path, monkeypatch, word, state):
    """A job that is put back held has a flag's word there, and its donors are to end."""
    scontrol(tmp_path, monkeypatch, f'printf "J=1\\n   JobState={word} Reason=x\\n"')
    assert slurm.job_state(1) == (state, "")


def test_a_job_whose_donor_is_away_is_put_back_and_not_started(tmp_path, monkeypatch, capsys):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    comment = COMMENT.format(port=port).replace("dgx2", "127.0.0.1")
    script = f'echo "$@" >>{tmp_path}/said\necho "   AdminComment={comment}"'
    scontrol(tmp_path, monkeypatch, script)
    assert join.main({"SLURM_JOB_ID": "7"}) == 1
    told = capsys.readouterr().out
    assert told.startswith(f"print gpu-topo: remote GPUs: 127.0.0.1:{port} cannot be reached")
    assert "export" not in told
    assert (tmp_path / "said").read_text().splitlines() == ["show job 7", "show job 7", "requeue 7"]


@pytest.mark.parametrize(
    ("sentence", "seen", "comments", "found"),
    [
        (
            "what the engine put back is found",
            ["JS1:x", "JS1:x", COMMENT.format(port=5)],
            ["gpu-donor of=7"],
            [71],
        ),
        ("a job without donors goes on at once", ["JS1:x"], ["mine", "gpu-donor of=8"], []),
        (
            "another record is no answer",
            ["[gpu-slots: gated tpn=gres:gpu:8 nodes=2-2 by=job]", COMMENT.format(port=5)],
            ["gpu-donor of=7"],
            [71],
        ),
        (
            "a job that runs without its loan does, though its donors are slow to end",
            ["[gpu-slots: placed token=x tpn=gres/gpu:7 nodes=1-1 by=node at=5]"],
            ["gpu-donor of=7"],
            [],
        ),
        ("a record without a loan is an answer", ["[gpu-loan: may remote=1]"], [], []),
        ("a record that stays away", ["JS1:x"], ["gpu-donor ready of=7 port=5"], None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_donors_of_a_job_whose_record_was_overwritten(monkeypatch, sentence, seen, comments, found):
    """Its donors say that it is on loan: it must not start without them."""
    left = list(seen)
    monkeypatch.setattr(
        slurm, "job_state", lambda job: ("RUNNING", left.pop(0) if left[1:] else left[0])
    )
    monkeypatch.setattr(slurm, "comments", lambda: comments)
    monkeypatch.setattr(join, "RESTORE_S", 1.2)
    if found is not None:
        assert [donor.job_id for donor in join.donors_of(7)] == found
    else:
        with pytest.raises(RemoteError, match="no longer says which donors"):
            join.donors_of(7)


LEAVES = """
import sys
from slurm_plugin.node.remote import join, slurm

async def meet(job_id, donors, vouching, tools):
    return {{"A": "1"}}, join.Ends(tools, {ends})

async def keep(ends, vouching, pid):
    print("seen by nobody")
    open(sys.argv[1], "a").write("kept\\n")

join.meet, join.keep = meet, keep
slurm.job_state = lambda job_id: ("RUNNING", {comment!r})
assert join.main({{"SLURM_JOB_ID": "7"}}) == 0
open(sys.argv[1], "a").write("over\\n")
"""


@pytest.mark.parametrize(("ends", "left"), [("[(None, None)]", ["kept", "over"]), ("[]", ["over"])])
def test_the_jobs_end_is_left_behind_in_a_process_that_does_nothing_else(tmp_path, ends, left):
    script = LEAVES.format(ends=ends, comment=COMMENT.format(port=5000))
    command = [sys.executable, "-c", script, str(tmp_path / "said")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == join.exports({"A": "1"})
    deadline = time.monotonic() + 20
    while (said := (tmp_path / "said").read_text().split()) and len(said) < len(left):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.2)
    assert sorted((tmp_path / "said").read_text().split()) == left
