"""How decisions reach Slurm: exact GPUs at the start (`Select`), or at submit (`Slots`)."""

from slurm_plugin.act.enforcement.interface import KEEP_S, Enforcement
from slurm_plugin.act.enforcement.select import Select
from slurm_plugin.act.enforcement.slots import Slots

__all__ = ["KEEP_S", "Enforcement", "Select", "Slots"]
