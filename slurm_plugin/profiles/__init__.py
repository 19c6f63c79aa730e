"""What is known of jobs' run times: files a site writes, and what finished jobs taught."""

from slurm_plugin.profiles.files import interference, read_profiles
from slurm_plugin.profiles.learned import Learned

__all__ = ["Learned", "interference", "read_profiles"]
