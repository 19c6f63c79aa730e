"""The launch table, the command that writes it, and the TaskProlog that reads it."""

import os
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from commands_in_tests import refused, run

from gres_topology import catalog
from slurm_plugin.errors import PluginError
from slurm_plugin.node.launch import LaunchMachine, machine_of, write
from slurm_plugin.node.launch.drawing import drawn

ROOT = Path(__file__).resolve().parents[4]
DGX1V = machine_of(catalog.load("dgx1v"))
MI250X = machine_of(catalog.load("mi250x"))


def test_a_table_ends_with_its_length_and_checksum():
    """Lines before the last, and their CRC-32."""
    text = write(DGX1V)
    body, _, last = text.rstrip("\n").rpartition("\n")
    body += "\n"
    assert last == f"end {body.count(chr(10))} {zlib.crc32(body.encode()):08x}"


def test_a_table_of_a_large_node_stays_small():
    """72 GPUs: one order per pattern and no rows."""
    assert len(write(machine_of(catalog.load("gb200-nvl72")))) < 8_000


def test_a_mapping_that_is_no_permutation_is_refused():
    with pytest.raises(PluginError, match="expected each of"):
        machine_of(DGX1V.topology, (0, 0, 1, 2, 3, 4, 5, 6))


def test_amd_machines_are_told():
    assert MI250X.is_amd
    assert not DGX1V.is_amd
    assert "\nvendor amd\n" in write(MI250X)


def test_the_command_writes_the_table_of_a_numbering():
    """Slurm's GPU 0 is the topology's GPU 2."""
    table = run("launch-table", "minsky", "--slurm-index", "2,0,3,1")
    assert "\ngpu 0 device=2 minor=- numa=1 nics=\n" in table


def test_the_command_reads_gres_conf(tmp_path):
    """Minors given by hand and File= in another order."""
    gres = tmp_path / "gres.conf"
    gres.write_text(
        "".join(f"NodeName=n[1-2] Name=gpu File=/dev/nvidia{m}\n" for m in (3, 2, 1, 0))
    )
    args = ["launch-table", "minsky", "--slurm-index", "gres-conf", "--gres-conf", str(gres)]
    table = run(*args, "--node", "n2", "--minors", "0,1,2,3")
    assert "\ngpu 0 device=3 minor=3 numa=1 nics=\n" in table
    # slurmd counts the devices of lines for every node first.
    gres.write_text("NodeName=n2 Name=gpu File=/dev/x[0-1]\nName=gpu File=/dev/x[2-3]\n")
    table = run(*args, "--node", "n2", "--minors", "0,1,2,3")
    assert "\ngpu 0 device=2 minor=2 numa=1 nics=\n" in table
    gres.write_text("NodeName=n[1- Name=gpu File=/dev/x[0-3]\n")
    assert "NodeName=n[1-: " in refused(*args, "--node", "n2", "--minors", "0,1,2,3")
    gres.write_bytes(b"Name=gpu File=/dev/x[0-3]\0\n")
    assert "gres.conf: has a NUL byte" in refused(*args)


def test_a_bad_numbering_is_one_line():
    said = refused("launch-table", "minsky", "--slurm-index", "0,x")
    assert "expected numbers such as 2,0,1,3" in said


@pytest.mark.parametrize("name", ["dgx1v", "mi250x"])
def test_the_pictures_in_the_docs_are_current(name):
    """Made again by gputopo launch-table NAME --plot docs/binding-NAME.svg."""
    picture = drawn(machine_of(catalog.load(name)))
    assert (ROOT / "docs" / f"binding-{name}.svg").read_text() == picture.svg() + "\n"


PROLOG = ROOT / "slurm_plugin" / "node" / "launch" / "task-prolog"


def prolog(
    tmp_path: Path, machine: LaunchMachine, table: str = "", uuids: Path = Path("/"), **env: str
) -> list[str]:
    """What the TaskProlog prints for a task; `uuids` stands in for the driver's folder."""
    (tmp_path / "table").write_text(table or write(machine))
    settings = f"table={tmp_path}/table\nnic=trust\nbind=none\nuuids={uuids}\n"
    (tmp_path / "conf").write_text(settings)
    full = {"GPUTOPO_CONF": str(tmp_path / "conf"), "SLURM_STEP_ID": "0", **env}
    done = subprocess.run([PROLOG], env=full, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("gpus", "nics"),
    [
        ("0", ["mlx5_0"]),
        ("0,1,3,4", ["mlx5_0", "mlx5_1", "mlx5_2"]),
        ("2,5,6", ["mlx5_1", "mlx5_2", "mlx5_3"]),
        ("0,1,2,3,4,5,6,7", []),
    ],
    ids=["one", "four", "three", "all"],
)
def test_the_task_prolog_prints_gpus_and_nics_in_rank_order(tmp_path, gpus, nics):
    order = DGX1V.order("ring", tuple(map(int, gpus.split(","))))
    lines = prolog(tmp_path, DGX1V, SLURM_STEP_GPUS=gpus, CUDA_VISIBLE_DEVICES=gpus)
    expected = [
        f"export CUDA_VISIBLE_DEVICES={','.join(map(str, order))}",
        "export CUDA_DEVICE_ORDER=PCI_BUS_ID",
    ]
    if nics:
        expected.append("export GPUTOPO_NICS=" + ",".join(nics))
        expected.append("export UCX_NET_DEVICES=" + ",".join(f"{nic}:1" for nic in nics))
        expected.append("export NCCL_IB_HCA==" + ",".join(nics))
    assert lines == expected


def uuid_of(gpu: int) -> str:
    return f"GPU-8932f937-d72c-4106-c12f-20bd9faed9f{gpu}"


@pytest.mark.parametrize(
    ("tres", "gpus", "ordered"),
    [("", "0145", "0154"), ("gres/gpu:map:3,0", "30", "30"), ("gres/gpu:per_task:1", "3", "3")],
    ids=["whole", "chosen", "a task's own"],
)
def test_the_task_prolog_names_gpus_by_uuid_where_slurm_does(tmp_path, tres, gpus, ordered):
    """Of the driver's eight, or, where it has others, not at all."""
    uuids = tmp_path / "gpus"
    env = {
        "CUDA_VISIBLE_DEVICES": ",".join(uuid_of(int(gpu)) for gpu in gpus),
        "SLURM_STEP_GPUS": ",".join(sorted(gpus)),
        "SLURMD_TRES_BIND": tres,
        "GPUTOPO_HINT": "uuids=/nowhere",  # a setting of the site alone
    }
    assert prolog(tmp_path, DGX1V, uuids=uuids, **env) == []
    for gpu in range(8):
        (uuids / f"0000:{16 + gpu:02x}:00.0").mkdir(parents=True)
        text = f"Model: \t\t NVIDIA V100\nGPU UUID: \t {uuid_of(gpu)}\nDevice Minor: \t 0\n"
        (uuids / f"0000:{16 + gpu:02x}:00.0" / "information").write_text(text)
    first = prolog(tmp_path, DGX1V, uuids=uuids, **env)[0]
    assert first == "export CUDA_VISIBLE_DEVICES=" + ",".join(uuid_of(int(g)) for g in ordered)
    env["CUDA_VISIBLE_DEVICES"] = "GPU-1"
    assert prolog(tmp_path, DGX1V, uuids=uuids, **env) == []


@pytest.mark.parametrize("step", ["", "batch", "-5"])
def test_the_task_prolog_of_a_batch_script_knows_the_jobs_gpus(tmp_path, step):
    """The step has no GPUs of its own there, whatever this release calls it."""
    env = {"SLURM_JOB_GPUS": "0,1,3,4", "CUDA_VISIBLE_DEVICES": "0,1,3,4"}
    visible = DGX1V.order("ring", (0, 1, 3, 4))
    expected = f"export CUDA_VISIBLE_DEVICES={','.join(map(str, visible))}"
    assert prolog(tmp_path, DGX1V, SLURM_STEP_ID=step, **env)[0] == expected
    assert prolog(tmp_path, DGX1V, SLURM_STEP_ID="3", **env) == []


#: Runs the TaskProlog as slurmstepd's child would, and tells the CPUs it left to its parent.
STEPD = "import os, subprocess, sys\nsubprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)\n"
STEPD += "print(*sorted(os.sched_getaffinity(0)))"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU alone cannot be narrowed")
@pytest.mark.parametrize(
    ("step", "hint", "is_bound"),
    [
        ("", "", False),
        ("-5", "pattern=star", False),
        ("4294967290", "", False),
        ("-5", "bind=numa", True),
        ("0", "", True),
    ],
    ids=["batch", "batch of 26.05", "salloc's shell", "batch that asks for it", "a step"],
)
def test_the_task_prolog_leaves_what_holds_the_whole_job_its_cpus(tmp_path, step, hint, is_bound):
    every = sorted(os.sched_getaffinity(0))
    numa = tuple(replace(node, cpus=(every[0],)) for node in DGX1V.topology.numa_nodes)
    machine = machine_of(replace(DGX1V.topology, numa_nodes=numa))
    (tmp_path / "table").write_text(write(machine))
    (tmp_path / "conf").write_text(f"table={tmp_path}/table\n")
    env = {"GPUTOPO_CONF": str(tmp_path / "conf"), "SLURM_STEP_ID": step, "GPUTOPO_HINT": hint}
    env |= dict.fromkeys(("SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "CUDA_VISIBLE_DEVICES"), "0")
    command = [sys.executable, "-c", STEPD, str(PROLOG)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    left = [int(word) for word in done.stdout.split()]
    assert left == (every[:1] if is_bound else every)


def test_the_task_prolog_divides_among_tasks(tmp_path):
    env = {"SLURMD_TRES_BIND": "gres/gpu:per_task:1", "SLURM_STEP_TASKS_PER_NODE": "4"}
    found = [
        prolog(
            tmp_path,
            MI250X,
            SLURM_STEP_GPUS="0,1,2,3",
            ROCR_VISIBLE_DEVICES=str(rank),
            SLURM_LOCALID=str(rank),
            **env,
        )[0]
        for rank in range(4)
    ]
    order = MI250X.order("ring", (0, 1, 2, 3))
    assert found == [f"export ROCR_VISIBLE_DEVICES={gpu}" for gpu in order]


def test_the_task_prolog_is_silent_on_a_broken_table(tmp_path):
    env = {"SLURM_STEP_GPUS": "0,1", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert prolog(tmp_path, DGX1V, **env) != []
    assert prolog(tmp_path, DGX1V, "\n".join(write(DGX1V).splitlines()[:-1]), **env) == []


def test_the_task_prolog_replaces_its_own_nics_only(tmp_path):
    """A step inherits the batch script's; a user's choice stands."""
    env = {"SLURM_STEP_GPUS": "0", "CUDA_VISIBLE_DEVICES": "0"}
    ours = {"UCX_NET_DEVICES": "a:1,b:1", "NCCL_IB_HCA": "=a,b", "GPUTOPO_NICS": "a,b"}
    assert "export NCCL_IB_HCA==mlx5_0" in prolog(tmp_path, DGX1V, **env, **ours)
    lines = prolog(tmp_path, DGX1V, **env, **(ours | {"NCCL_IB_HCA": "mine"}))
    assert not any("NCCL" in line for line in lines)
    lines = prolog(tmp_path, MI250X, SLURM_STEP_GPUS="0", ROCR_VISIBLE_DEVICES="0", **ours)
    assert "unset NCCL_IB_HCA" in lines


def test_the_task_prolog_obeys_a_hint(tmp_path):
    """A pattern, and off; a hint cannot name another table."""
    gpus = {"SLURM_STEP_GPUS": "0,1,2,3", "CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    lines = prolog(tmp_path, DGX1V, **gpus, GPUTOPO_HINT="table=/x, pattern = star")
    star = ",".join(map(str, DGX1V.order("star", (0, 1, 2, 3))))
    assert lines[0] == f"export CUDA_VISIBLE_DEVICES={star}"
    assert prolog(tmp_path, DGX1V, **gpus, GPUTOPO_HINT="off") == []
