"""`gputopo doctor`: checks every piece of an installation and says what to fix."""

from slurm_plugin.doctor.checks import CHECKS, examine
from slurm_plugin.doctor.finding import Finding
from slurm_plugin.doctor.installation import Installation

__all__ = ["CHECKS", "Finding", "Installation", "examine"]
