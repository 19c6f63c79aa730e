"""What is known of jobs' run times: files a site writes, and what finished jobs taught."""

from slurm_plugin.job_profiles.files import Remote, interference, read_profiles, read_remote
from slurm_plugin.job_profiles.learned import Learned

__all__ = ["Learned", "Remote", "interference", "read_profiles", "read_remote"]
