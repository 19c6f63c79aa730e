"""Which licences a job asks for, and of which of them too few are free."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from gres_topology import hostlist
from slurm_plugin.slurm.interface import License

# `matlab:2`; of a layer of a hierarchical resource `natural(dgx[1-2]):2`.
_LICENSE = re.compile(r"([\w.@-]+)(?:\([^)]*\))?(?:[:=](\d+))?")


class AskedLicense(NamedTuple):
    """One licence that a job asks for."""

    needs: int
    #: All that there is of it; a licence without layers is one.
    layers: tuple[License, ...]

    @property
    def lacking(self) -> License | None:
        """One of the layers without which the job cannot start; None where another may do."""
        lacking = [one for one in self.layers if one.free < self.needs]
        if not lacking:
            return None
        if any(one.mode < 2 for one in self.layers):
            is_certain = len(lacking) == len(self.layers)
        else:
            # Every layer above a node counts there (_foreach_hres_filter_mode2 of licenses.c).
            is_certain = _nodes_of(lacking) >= _nodes_of(self.layers)
        return max(lacking, key=lambda one: one.free) if is_certain else None


def asked_for(text: str, there: Sequence[License]) -> list[AskedLicense]:
    """The licences of a job, by the text that Slurm has of them (`matlab:2,comsol`)."""
    return [
        AskedLicense(int((count or "1")[:9]), tuple(one for one in there if one.name == name))
        for name, count in _LICENSE.findall(text)
    ]


def lacking(text: str, asked: Sequence[AskedLicense]) -> list[tuple[License, int]]:
    """What too little is free of, and how much of it the job needs.

    Of several with `|` between them one suffices.
    """
    lacks = [(layer, one.needs) for one in asked if (layer := one.lacking) is not None]
    return [] if "|" in text and len(lacks) < len(asked) else lacks


def _nodes_of(layers: Sequence[License]) -> frozenset[str]:
    return frozenset(name for one in layers for name in hostlist.expand(one.nodes))
