"""Run times of jobs: the files that a site writes, and those learned from finished jobs."""

from slurm_plugin.learn.job_profiles.files import Remote, interference, read_profiles
from slurm_plugin.learn.job_profiles.learned import Learned

__all__ = ["Learned", "Remote", "interference", "read_profiles"]
