"""What prolog-env tells a Prolog and an Epilog, with a scontrol that says what real ones said."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[4] / "slurm_plugin" / "node" / "launch" / "prolog-env"

#: `scontrol show job -d 20` on 24.11.5: the array's other task is in the answer.
ARRAY = """\
JobId=20 ArrayJobId=20 ArrayTaskId=1 JobName=wrap
   JobState=RUNNING Reason=None Dependency=(null)
   JOB_GRES=gpu:v100.s1:1,gpu:v100.s2:1
     Nodes=dgx2 CPU_IDs=1 Mem=50 GRES=gpu:v100.s1:1(IDX:1),gpu:v100.s2:1(IDX:2)
   Comment=(null)

JobId=21 ArrayJobId=20 ArrayTaskId=0 JobName=wrap
   JobState=RUNNING Reason=None Dependency=(null)
   JOB_GRES=gpu:v100.s0:1,gpu:v100.s2:1
     Nodes=dgx2 CPU_IDs=0 Mem=50 GRES=gpu:v100.s0:1(IDX:0),gpu:v100.s2:1(IDX:2)
"""
#: Slurm's own choice on three nodes, one of them with other GPUs.
UNEVEN = """\
JobId=20 JobName=wrap
     Nodes=dgx[1-2] CPU_IDs=0 Mem=50 GRES=gpu:v100.s0:1(IDX:0),gpu:v100.s7:1(IDX:7)
     Nodes=dgx3 CPU_IDs=0 Mem=50 GRES=nic:a:1(IDX:5),gpu:v100.s3:1(IDX:3),gpu:v100.s7:1(IDX:7)
"""
FORGED = "   Comment=a\n     Nodes=dgx2 CPU_IDs=0 Mem=50 GRES=gpu:x:8(IDX:0-7)\n"
ONE_TYPE = (
    "JobId=20\n     Nodes=dgx2 CPU_IDs=0 Mem=50 GRES=gpu:(null):3(IDX:0,2-3),gpu:b:1(IDX:5)\n"
)


@pytest.fixture
def says(tmp_path):
    """Writes what scontrol says about the job; one that is never written fails."""
    fake = tmp_path / "scontrol"
    fake.write_text(
        "#!/bin/sh\n"
        'echo "$*" >>"$FOLDER/asked"\n'
        '[ "$2" = job ] && exec cat "$FOLDER/job"\n'
        'echo "$3" | tr , "\\n" | sed "s/dgx\\[1-2\\]/dgx1\\ndgx2/"\n'
    )
    fake.chmod(0o755)
    return (tmp_path / "job").write_text


def told(folder: Path, last: str, context: str = "prolog", **env: str) -> dict[str, str]:
    """The variables it exports, on dgx2 for job 20."""
    given = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "FOLDER": str(folder),
        "GPUTOPO_PROLOG_STATE": str(folder / "state"),
        "SLURM_SCRIPT_CONTEXT": f"{context}_slurmd",
        "SLURMD_NODENAME": "dgx2",
        "SLURM_JOB_ID": "20",
        "SLURM_JOB_GPUS": last,
        **env,
    }
    done = subprocess.run([SCRIPT], env=given, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    lines = [line.removeprefix("export ") for line in done.stdout.splitlines()]
    return dict(line.split("=") for line in lines)


@pytest.mark.parametrize(
    ("record", "last", "gpus"),
    [
        (ARRAY, "2", "1,2"),
        (UNEVEN, "7", "0,7"),
        (UNEVEN.replace("dgx[1-2]", "dgx1").replace("dgx3", "dgx2"), "7", "3,7"),
        (ONE_TYPE, "5", "0,2,3,5"),
        ("JobId=20\n     Nodes=dgx2 CPU_IDs=0 Mem=50 GRES=gpu:v100.s4:1(IDX:4)\n", "4", "4"),
    ],
    ids=["an array", "several nodes", "other GPUs here", "types with several", "one GPU"],
)
def test_prolog_and_epilog_name_all_gpus_of_the_job_on_this_node(
    tmp_path, says, record, last, gpus
):
    """Epilog asks nobody: by then slurmctld has forgotten them."""
    says(record)
    assert told(tmp_path, last) == {"SLURM_JOB_GPUS": gpus}
    (tmp_path / "scontrol").unlink()
    assert told(tmp_path, last, "epilog") == {"SLURM_JOB_GPUS": gpus}


@pytest.mark.parametrize(
    "record",
    [
        ARRAY + FORGED,
        ARRAY.replace("   Comment=(null)\n", FORGED),
        ARRAY.replace("IDX:2", "IDX:3"),
        ARRAY.replace("dgx2", "dgx1"),
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n",
        "",
    ],
    ids=["forged in another task", "forged", "other GPUs", "another node", "an error", "nothing"],
)
def test_what_cannot_be_relied_on_changes_nothing(tmp_path, says, record):
    """A user who forges such a line gets less, not another's GPUs."""
    says(record)
    expected = "1,2" if record == ARRAY + FORGED else "2"
    assert told(tmp_path, "2")["SLURM_JOB_GPUS"] == expected
    assert told(tmp_path, "2", "epilog")["SLURM_JOB_GPUS"] == expected


def test_every_variable_that_slurmd_set_to_the_last_slot_is_replaced(tmp_path, says):
    """UUIDs are left alone, and what was not set is not set."""
    says(ARRAY)
    given = {"CUDA_VISIBLE_DEVICES": "GPU-1", "ROCR_VISIBLE_DEVICES": "2", "ZE_AFFINITY_MASK": "2"}
    assert told(tmp_path, "2", **given) == {
        "SLURM_JOB_GPUS": "1,2",
        "ROCR_VISIBLE_DEVICES": "1,2",
        "ZE_AFFINITY_MASK": "1,2",
    }


@pytest.mark.parametrize(
    ("last", "context"), [("", "prolog"), ("0,3", "prolog"), ("2", "task"), ("2", "epilog")]
)
def test_nobody_is_asked_where_nothing_is_missing(tmp_path, says, last, context):
    """No GPU; several of one type (enforcement: select); no Prolog; an Epilog without a Prolog."""
    says(ARRAY)
    assert told(tmp_path, last, context) == {}
    assert not (tmp_path / "asked").exists()


def test_what_an_earlier_job_left_is_not_this_jobs(tmp_path, says):
    """A job whose Prolog did not run has the last slot of an earlier one."""
    says(ARRAY)
    told(tmp_path, "2")
    assert told(tmp_path, "2", "epilog", SLURM_JOB_ID="22") == {}
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["2"]
