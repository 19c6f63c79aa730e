"""How decisions reach Slurm. Policies never know which of these is in use."""

from slurm_plugin.enforcement.interface import Enforcement
from slurm_plugin.enforcement.select import Select
from slurm_plugin.enforcement.slots import Slots

__all__ = ["Enforcement", "Select", "Slots"]
