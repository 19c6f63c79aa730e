"""What a set of GPUs is worth: tables of every set of a node, and the objectives that rank them.

`measured` scores GPUs that were chosen without the tables.
"""

from policies.scoring.measure import measured

__all__ = ["measured"]
