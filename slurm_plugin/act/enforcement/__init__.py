"""How decisions reach Slurm: exact GPUs at the start (`Select`), or at submit (`Slots`).

Both answer a submit and a job about to start, and never raise. Where jobs are shaped,
`act/genie/shaping.py` wraps one of them.
"""

from slurm_plugin.act.enforcement.select import Select
from slurm_plugin.act.enforcement.slots import Slots

__all__ = ["Enforcement", "Select", "Slots"]

Enforcement = Select | Slots
