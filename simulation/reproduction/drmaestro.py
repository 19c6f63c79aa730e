"""DRMaestro (Amaral, doctoral thesis): its rows."""

from __future__ import annotations

from simulation.reproduction.claims import Paper

DRMAESTRO = Paper("drmaestro", "DRMaestro (Amaral, doctoral thesis)", 31, 10, (), (), {})
