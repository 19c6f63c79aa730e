"""MAPA (Ranganath et al., SC'21): GPU sets by how well they carry the application's pattern."""

from policies.mapa.family import Mapa, MapaGreedy, MapaPreserve, MapaPreserveSite, MapaWidest

__all__ = ["Mapa", "MapaGreedy", "MapaPreserve", "MapaPreserveSite", "MapaWidest"]
