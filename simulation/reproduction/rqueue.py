"""The R queue (Markthub et al., PDCAT 2014): its rows."""

from __future__ import annotations

from simulation.reproduction.claims import Paper

RQUEUE = Paper("rqueue", "The R queue (Markthub et al., PDCAT 2014)", 11, 3, (), (), {})
