"""How a donor is submitted: the words of its sbatch, made from root's own configuration."""

from __future__ import annotations

import json
import shlex

from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.job_notes import donor
from slurm_plugin.lending.acting.borrower import Borrower
from slurm_plugin.lending.acting.question import Question

#: By then a donor has its GPUs, or its engine is gone and the next one looks after it.
BEGIN = "now+3600"


def words(asked: Question, job: Borrower, settings: RemoteConfig) -> list[str]:
    """The command line that submits a donor."""
    words = [
        *("sbatch", "--parsable", f"--job-name={donor.NAME}", "--nodes=1", "--ntasks=1"),
        f"--comment={donor.submitted(asked.borrower)}",
        f"--cpus-per-task={settings.donor_cpus * asked.gpus}",
        f"--mem={settings.donor_memory_mb * asked.gpus}M",
        f"--nodelist={asked.node}",
        f"--partition={job.partition}",
        *(f"--begin={BEGIN}", "--no-requeue", "--chdir=/"),
        # The limits of this process are not the user's.
        *("--propagate=NONE", "--output=/dev/null", "--error=/dev/null"),
    ]
    if job.time_limit:
        words.append(f"--time={job.time_limit}")
    if job.account:
        words.append(f"--account={job.account}")
    return [*words, f"--wrap={script(asked, settings)}"]


def script(asked: Question, settings: RemoteConfig) -> str:
    """The line of a donor's script: the nodes' program, and its task."""
    low, high = settings.ports
    task = {
        "parent": asked.borrower,
        "gpus": asked.gpus,
        "low": low,
        "high": high,
        "trust_network": settings.trust_network,
        "preset": json.loads(settings.preset.text()),
    }
    return f"exec {shlex.join([str(settings.program), 'donor', json.dumps(task)])}"
