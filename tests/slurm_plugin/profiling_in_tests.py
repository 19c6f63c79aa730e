"""A played Slurm with a training script in it, for the tests of `gputopo profile run`."""

import math
from collections.abc import Callable
from pathlib import Path

from fake_cluster import Asked as Job
from fake_cluster import FakeCluster

from policies.performance import Shape
from slurm_plugin.act.profiling import plan, submission
from slurm_plugin.act.profiling.loop import ProfilingLoop, RunLimits, SlurmAccess
from slurm_plugin.act.profiling.plan import ProfileRequest
from slurm_plugin.act.profiling.progress import Folder, Progress

SCRIPT = "#!/bin/sh\n#SBATCH --gres=gpu:v100:4 --mem=8G\n#SBATCH -e err.txt\nsrun train\n"


def truth_s(shape: Shape, local_batch: int) -> float:
    """Seconds per iteration of the job that is played."""
    sync = 0.01 * math.log2(shape.gpus) + 0.02 * math.log2(shape.nodes)
    return 0.02 + 0.002 * local_batch + sync


def trains(job: Job) -> tuple[float, str, str]:
    """Prints its step from two ranks, after 7 s of start-up."""
    step_s = truth_s(Shape(job.nodes, job.gpus), job.local_batch)
    line = f"gputopo: step_s={step_s}\n"
    return 7 + step_s * job.iterations, "COMPLETED", f"0: epoch 1\n0: {line}1: {line}bye\n"


class Bench:
    """A folder with a script, and a played cluster."""

    def __init__(self, folder: Path, script: Callable[[Job], tuple[float, str, str]]) -> None:
        self.path = folder
        (folder / "train.sh").write_text(SCRIPT)
        self.slurm = FakeCluster(script)
        self.said: list[str] = []
        self.terms = RunLimits()

    def profile(self, again: bool = False, **asked: object) -> Progress:
        """One `profile run`, from beginning or where it was, to its end."""
        words = submission.read_submission(
            ["sbatch", "-A", "research", str(self.path / "train.sh")], {}
        )
        wanted = ProfileRequest("train", "training", **{"batches": (8, 16, 32), **asked})
        folder = Folder(self.path / "work")
        with folder.locked():
            progress = folder.read()
            if progress is None:
                progress = plan.begin(self.slurm, words, wanted, self.path, self.slurm.at)
            plan.check_same(progress, words, wanted, self.path)
            if again:
                plan.again(progress)
            folder.write(progress)
            how = submission.RunOptions(progress.settings, 10, 10000)
            slurm = SlurmAccess(self.slurm, self.slurm, self.slurm.submit)
            ProfilingLoop(
                slurm,
                folder,
                progress,
                (words, how),
                self.terms,
                self.said.append,
                self.slurm.sleep,
                self.slurm.clock,
            ).work()
        return progress


def of(progress: Progress) -> list[tuple[str, int, str]]:
    return [(str(run.shape), run.local_batch, run.state) for run in progress.runs]
