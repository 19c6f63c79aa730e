"""MAPA (Ranganath et al., SC'21): its rows."""

from __future__ import annotations

from simulation.reproduction.claims import Paper

MAPA = Paper("mapa", "MAPA (Ranganath et al., SC'21)", 19, 3, (), (), {})
