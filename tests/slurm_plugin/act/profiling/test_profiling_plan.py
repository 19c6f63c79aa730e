"""Which nodes a profile takes, and how it submits what the user would have submitted."""

from pathlib import Path

import pytest
from fake_cluster import FakeCluster, node
from profiling_in_tests import trains

from policies.performance import Shape
from slurm_plugin.act.profiling import plan, submission, sweep
from slurm_plugin.act.profiling.plan import ProfileRequest
from slurm_plugin.act.profiling.progress import ProfileSettings, Progress
from slurm_plugin.errors import PluginError
from slurm_plugin.slurm.interface import SlurmNode

# -- which nodes -------------------------------------------------------------------------


def chosen(nodes: list[SlurmNode], on: str = "", gpu_type: str = "", *words: str) -> Progress:
    slurm = FakeCluster(trains, *nodes)
    read = submission.read_submission(["sbatch", *words, "--wrap=x"], {})
    return plan.begin(
        slurm, read, ProfileRequest("x", "training", on=on, gpu_type=gpu_type), Path(), 0
    )


MIXED = [node("a1", 8, "a100"), node("v1"), node("v2"), node("v3", state=("IDLE", "DRAIN")),
         node("p1", 4, "p100", features=("ib",))]  # fmt: skip


def test_the_kind_with_most_nodes_is_taken_and_the_others_kept_out():
    settings = chosen(MIXED).settings
    assert (settings.kind, settings.names) == ("4 v100", ("v1", "v2"))
    assert settings.others == ("a1", "p1", "v3")
    assert (settings.nodes, settings.gpus_per_node) == ((1, 2), (1, 2, 4))


def test_nodes_or_a_type_may_be_asked_for():
    assert chosen(MIXED, on="p1").settings.kind == "4 p100"
    assert chosen(MIXED, gpu_type="a100").settings.gpus_per_node == (1, 2, 4, 8)
    assert chosen(MIXED, "", "", "-C", "ib").settings.names == ("p1",)


def test_slots_of_one_model_are_one_kind():
    slots = {f"v100.s{at}": 1 for at in range(4)}
    settings = chosen([node("n1", gpus=slots), node("n2", gpus=slots)]).settings
    assert (settings.kind, settings.names) == ("4 v100", ("n1", "n2"))


def test_a_sweep_ends_at_what_there_is():
    assert sweep.within(None, 6, 8, "--nodes") == (1, 2, 4, 6)
    assert sweep.within(None, 100, 8, "--nodes") == (1, 2, 4, 8)
    assert sweep.within((1, 3), 6, 8, "--nodes") == (1, 3)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"on": "v9"}, "--on v9: expected nodes with GPUs of the partition: a1: 8 a100"),
        ({"on": "v3"}, "is up and as wanted: --on v3"),
        ({"gpu_type": "h100"}, "is up and as wanted: GPU type h100"),
    ],
)
def test_nodes_that_are_not_there_are_named(how, said):
    with pytest.raises(PluginError, match=said):
        chosen(MIXED, **how)


def test_a_partition_or_constraint_that_cannot_be_followed_is_named():
    with pytest.raises(PluginError, match="cpu: no such partition; expected one of gpu"):
        chosen(MIXED, "", "", "-p", "cpu")
    with pytest.raises(PluginError, match=r"--constraint=\[a\|b\]: not judged here; add --on"):
        chosen(MIXED, "", "", "--constraint=[a|b]")


# -- the command line of sbatch -------------------------------------------------------------


def argv(text: str, words: tuple[str, ...] = (), **how: object) -> list[str]:
    path = how.pop("path")
    assert isinstance(path, Path)
    (path / "job.sh").write_text(text)
    own = ["{batch}/{gpus_per_node}", "${batch}", "{other}"]
    read = submission.read_submission(["/opt/bin/sbatch", *words, str(path / "job.sh"), *own], {})
    settings = ProfileSettings(
        "x",
        "training",
        (),
        "",
        (16,),
        (2,),
        (4,),
        100,
        bool(how.get("per_gpu", True)),
        read.gpu_type,
        "",
        "",
        (),
        (),
    )
    launch = submission.RunOptions(settings, 10, 5)
    return submission.command(read, launch, Shape(2, 4), 16, "name", Path("out.%j"))


@pytest.mark.parametrize(
    ("sentence", "asks", "given"),
    [
        ("nothing", "", ["--gres=gpu:4"]),
        ("--gres with more", "--gres=gpu:a100:8,tmp:9", ["--gres=gpu:a100:4,tmp:9"]),
        ("--gpus-per-node", "--gpus-per-node v100:2", ["--gpus-per-node=v100:4"]),
        ("-G", "-G 8", ["--gpus=8", "--gpus-per-node=4"]),
        ("per task", "--gpus-per-task=1 -n8", ["--gpus-per-task=1", "--gpus-per-node=4"]),
    ],
)
def test_gpus_are_asked_in_the_form_that_the_script_uses(tmp_path, sentence, asks, given):
    found = argv(f"#!/bin/sh\n#SBATCH {asks}\ntrue\n#SBATCH --array=1-9\n", path=tmp_path)
    assert [word for word in found if word.startswith(("--gres", "--gpus"))] == given
    assert {"--nodes=2", "--ntasks=8", "--ntasks-per-node=4"} <= set(found)
    assert found[0] == "sbatch"


def test_one_task_per_node_where_that_is_wanted(tmp_path):
    found = argv("#!/bin/sh\n#SBATCH --gpus-per-task=1\n", path=tmp_path, per_gpu=False)
    assert {"--ntasks=2", "--ntasks-per-node=1", "--gpus-per-task=4"} <= set(found)


def test_numbers_may_stand_in_the_command_itself(tmp_path):
    assert argv("#!/bin/sh\n", path=tmp_path)[-3:] == ["128/4", "${batch}", "{other}"]


@pytest.mark.parametrize(
    ("words", "script", "base"),
    [
        ((), "#SBATCH --export=NONE", ""),
        (("--export=B",), "#SBATCH --export=NONE", "B,"),
        (("--export", "A=1,B"), "", "A=1,B,"),
    ],
)
def test_our_variables_are_added_to_what_the_user_exports(tmp_path, words, script, base):
    found = argv(f"#!/bin/sh\n{script}\n", words, path=tmp_path)
    exports = [word for word in found if word.startswith("--export")]
    assert len(exports) == 1
    assert exports[0].startswith(f"--export={base}GPUTOPO_BATCH=128,GPUTOPO_LOCAL_BATCH=16,")


@pytest.mark.parametrize(
    ("words", "script"),
    [((), ""), ((), "#SBATCH --export=ALL"), (("--export=ALL,A=1",), "#SBATCH --export=NONE")],
)
def test_who_exports_all_exports_ours(tmp_path, words, script):
    found = argv(f"#!/bin/sh\n{script}\n", words, path=tmp_path)
    assert [word for word in found if word.startswith("--export")] == list(words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "'nothing' behind the `--`; expected sbatch"),
        (["srun", "x"], "'srun' behind the `--`; expected sbatch"),
        (["sbatch"], "sbatch without a script"),
        (["sbatch", "none.sh"], "none.sh: No such file or directory; expected a batch script"),
        (["sbatch", "-N2", "x"], "sbatch --nodes: each run has a shape of its own"),
        (["sbatch", "-p", "gpu", "--gres=gpu:2", "x"], "sbatch --gres: each run has a shape"),
        (["sbatch", "-t", "5", "x"], "sbatch --time: give --limit MINUTES"),
        (["sbatch", "-w", "n1", "x"], "sbatch --nodelist: give --on NODES"),
        (["sbatch", "-Hp", "gpu", "x"], "sbatch --hold: a run must start by itself"),
        (["sbatch", "--exclusive", "x"], "sbatch --exclusive: it gives a run all GPUs"),
        (["sbatch", "-n1", ":", "-n2", "x"], "sbatch --ntasks: each run"),
        (["sbatch", "--arr=1-9", "x"], "sbatch --array: a run must start by itself"),
    ],
)
def test_what_cannot_be_profiled_is_refused(words, said):
    with pytest.raises(PluginError, match=said):
        submission.read_submission(words, {})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("#SBATCH --array=1-3", "job.sh: #SBATCH --array: a run must start by itself"),
        ("#SBATCH --exclusive", "job.sh: #SBATCH --exclusive: it gives a run all GPUs"),
        ("#SLURM --array=1-3", "job.sh: #SBATCH --array: a run must start by itself"),
        ("#SBATCH hetjob", "job.sh: #SBATCH hetjob: a heterogeneous job"),
        ("#SBATCH --comment='open", "job.sh:2: No closing quotation"),
    ],
)
def test_a_script_that_cannot_be_profiled_is_refused(tmp_path, line, said):
    with pytest.raises(PluginError, match=said):
        argv(f"#!/bin/sh\n{line}\n", path=tmp_path)


def test_a_variable_that_adds_gpus_is_refused(tmp_path):
    with pytest.raises(PluginError, match="SBATCH_GPUS is set"):
        submission.read_submission(["sbatch", "--wrap=x"], {"SBATCH_GPUS": "2"})
