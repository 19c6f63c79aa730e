"""GENIE (Chen et al., TPDS): its rows."""

from __future__ import annotations

from simulation.reproduction.claims import Paper

GENIE = Paper("genie", "GENIE (Chen et al., TPDS)", 18, 3, (), (), {})
