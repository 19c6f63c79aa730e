"""MIG slices and partitions: parts of a GPU that Slurm counts as GPUs, and the GPU each is of.

Names as in NVIDIA's MIG user guide: a profile is `3g.20gb` (compute slices, memory), `1c.3g.20gb` a
compute instance of it. As a GRES type Slurm's AutoDetect=nvml puts the GPU's name before it
(`a100_1g.5gb`: `_handle_mig` in Slurm's gpu_nvml.c, 22.05 to 26.05); by hand it may stand alone.
Those of AMD's GPUs are in `partitions`; what is done with either is the same.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gres_topology import cpulist, links, partitions
from gres_topology.errors import TopologyError
from gres_topology.topology import SELF, NodeTopology

#: Slurm counts no more GPUs of a node one by one.
MOST_DEVICES = 64
EXPECTED = "GPUs in Slurm's order, such as [0-5, 6/3g.20gb*2, 7/1g.5gb*7]"

_PROFILE = re.compile(r"(?:([1-7])c\.)?([1-7])g\.(\d{1,3})gb(?:[+.-][\w.,+-]*)?\Z")
_WORD = re.compile(r"(\d{1,3})/([\w.+-]{1,128})(?:\*(\d{1,2}))?\Z")

#: Where a profile may lie: how many memory slices it takes, and the first of them.
_Places = Mapping[tuple[int, int], tuple[int, tuple[int, ...]]]


def _sevenths(gb: tuple[int, int, int, int, int]) -> _Places:
    """GPUs of seven compute and eight memory slices; memory of 1g, 1g and 2g doubled, 3g, 7g."""
    small, double, two, half, full = gb
    return {
        (1, small): (1, (0, 1, 2, 3, 4, 5, 6)),
        (1, double): (2, (0, 2, 4, 6)),
        (2, two): (2, (0, 2, 4)),
        (3, half): (4, (0, 4)),
        (4, half): (4, (0,)),
        (7, full): (8, (0,)),
    }


def _halves(most: int, gb: int) -> _Places:
    """GPUs of `most` slices that are cut in halves; `gb` is the memory of the smallest part."""
    sizes = [size for size in (1, 2, 4) if size <= most]
    return {(size, size * gb): (size, tuple(range(0, most, size))) for size in sizes}


#: Memory of a GPU in GB -> its profiles. NVIDIA MIG user guide, "Supported MIG Profiles", and
#: what `nvidia-smi mig -lgipp` prints there.
_FAMILIES: tuple[tuple[int, _Places], ...] = (
    (24, _halves(4, 6)),
    (40, _sevenths((5, 10, 10, 20, 40))),
    (48, _halves(2, 24)),
    (80, _sevenths((10, 20, 20, 40, 80))),
    (94, _sevenths((12, 24, 24, 47, 94))),
    (96, _sevenths((12, 24, 24, 48, 96))),
    (96, _halves(4, 24)),
    (141, _sevenths((18, 35, 35, 71, 141))),
    (180, _sevenths((23, 45, 45, 90, 180))),
    (186, _sevenths((23, 47, 47, 93, 186))),
)
#: What a GPU of a family that is not known here can be cut into at most.
_MOST_COMPUTE = 7


def profile_of(gres_type: str) -> str:
    """The profile that a GRES type names: `a100_1g.5gb` is `1g.5gb`; '' for a whole GPU's type.

    Of AMD's it is the mode: `mi300x_cpx` is `cpx`.
    """
    match = re.search(r"(?:\d+c\.)?\d+g\.\d+gb.*", gres_type)
    return match.group(0) if match else partitions.mode_of(gres_type)


@dataclass(frozen=True)
class SlicedTopology(NodeTopology):
    """All that Slurm counts on a node with slices, in Slurm's order.

    `whole` has the node's GPUs; device i is GPU `parents[i]` of it, or its slice of profile
    `profiles[i]` ('' for a whole GPU). Slices do not talk to each other, so links say nothing.
    """

    whole: NodeTopology = field(kw_only=True)
    parents: tuple[int, ...] = ()
    profiles: tuple[str, ...] = ()

    @cached_property
    def shape(self) -> str:
        """As of any topology: nodes of equal shape are alike."""
        text = f"{self.whole.shape} {self.parents} {self.profiles}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @cached_property
    def runs(self) -> tuple[int, ...]:
        """Slices of one profile that are neighbours and of one GPU can take each other's place."""
        masks: list[int] = []
        kinds = list(zip(self.parents, self.profiles, strict=True))
        for device, kind in enumerate(kinds):
            if device and kind == kinds[device - 1]:
                masks[-1] |= 1 << device
            else:
                masks.append(1 << device)
        return tuple(masks)

    @property
    def broken(self) -> int:
        """The devices (mask) of GPUs that are broken."""
        return sum(mask for gpu, mask in enumerate(self.devices_of) if self.whole.broken >> gpu & 1)

    @property
    def lag_tenths(self) -> int:
        """How many tenths GPUs of this node are slower than its kind's, as on the whole node."""
        return self.whole.lag_tenths

    @property
    def boards(self) -> tuple[tuple[int, ...], ...]:
        """None: GPUs differ in whom they are joined to."""
        return ()

    @cached_property
    def devices_of(self) -> tuple[int, ...]:
        """The devices (mask) of each GPU: itself, or its slices."""
        masks = [0] * self.whole.gpus
        for device, gpu in enumerate(self.parents):
            masks[gpu] |= 1 << device
        return tuple(masks)

    @cached_property
    def of_profile(self) -> Mapping[str, int]:
        """The devices (mask) of each profile; of '' the whole GPUs."""
        masks: Counter[str] = Counter()
        for device, profile in enumerate(self.profiles):
            masks[profile] |= 1 << device
        return dict(masks)

    def untouched(self, free: int) -> int:
        """How many GPUs nobody uses any part of, if these devices are free (mask)."""
        return sum(mask & free == mask for mask in self.devices_of)

    def __hash__(self) -> int:
        return hash(self.shape)


def declared(whole: NodeTopology, words: Sequence[str]) -> SlicedTopology:
    """A node's GPUs and slices as Slurm counts them: `0-5`, `6/3g.20gb*2`.

    Each GPU of `whole` is there once: whole, or with all its slices, which must fit on it. Raises
    TopologyError that names the word.
    """
    parents: list[int] = []
    profiles: list[str] = []
    for word in words:
        for gpu, profile in _devices(word):
            if gpu >= whole.gpus:
                raise TopologyError(
                    f"{word}: {whole.name} has no GPU {gpu}; expected 0 to {whole.gpus - 1}"
                )
            parents.append(gpu)
            profiles.append(profile)
    if len(parents) > MOST_DEVICES:
        raise TopologyError(f"{len(parents)} GPUs and slices; expected at most {MOST_DEVICES}")
    for gpu in range(whole.gpus):
        _check_gpu(whole, gpu, [p for of, p in zip(parents, profiles, strict=True) if of == gpu])
    return _sliced(whole, tuple(parents), tuple(profiles))


def words_of(listing: str) -> list[str]:
    """What `declared` takes, from `nvidia-smi -L` or `amd-smi partition --current --json`.

    Whole GPUs come first, then one profile after the other as they are listed: the order of a node
    whose `Gres=` in slurm.conf names its types so. Raises TopologyError where no GPU is listed.
    """
    if partitions.looks_like(listing):
        return partitions.words_of(listing)
    found: dict[int, Counter[str]] = {}
    for line in listing.splitlines():
        if gpu := re.match(r"\s*GPU (\d{1,3}):", line):
            found[int(gpu[1])] = Counter()
        elif (slice_ := re.match(r"\s*MIG (\S+)\s+Device\s+\d+:", line)) and found:
            found[max(found)][slice_[1]] += 1
    if not found:
        raise TopologyError(
            "no line `GPU 0: ...`; expected the output of nvidia-smi -L, or of amd-smi partition"
            " --current --json"
        )
    whole = cpulist.format_list(gpu for gpu, slices in found.items() if not slices)
    profiles = dict.fromkeys(profile for slices in found.values() for profile in slices)
    return [part for part in whole.split(",") if part] + [
        f"{gpu}/{profile}" + (f"*{count}" if count > 1 else "")
        for profile in profiles
        for gpu, slices in found.items()
        if (count := slices[profile])
    ]


def _devices(word: str) -> list[tuple[int, str]]:
    """The (GPU, profile) pairs of one word."""
    match = _WORD.match(word)
    if match is None:
        try:
            return [(gpu, "") for gpu in cpulist.parse_list(word)]
        except ValueError:
            raise TopologyError(f"{word!r}: expected {EXPECTED}") from None
    profile = profile_of(match[2])
    if not _PROFILE.match(profile) and not partitions.mode_of(profile):
        raise TopologyError(f"{word}: {match[2]!r} is no MIG profile; expected {EXPECTED}")
    return [(int(match[1]), profile)] * int(match[3] or 1)


def _check_gpu(whole: NodeTopology, gpu: int, profiles: Sequence[str]) -> None:
    """Raises TopologyError unless the GPU is there once, or with slices that it can have."""
    if not profiles or ("" in profiles and len(profiles) > 1):
        found = f"{len(profiles)} times" if profiles else "nowhere"
        raise TopologyError(f"GPU {gpu} stands {found}; expected each GPU once, whole or in slices")
    if "" in profiles:
        return
    if any(map(partitions.mode_of, profiles)):
        if problem := partitions.problem(whole.model, profiles):
            raise TopologyError(f"GPU {gpu}: {problem}")
        return
    parts = _instances(profiles)
    memory = re.search(r"(\d+) ?GB", whole.model or "")
    families = [f for f in _FAMILIES if all(part in f[1] for part in parts)]
    known = [f for f in families if memory and f[0] == int(memory[1])]
    listed = " + ".join(f"{count} {profile}" for profile, count in Counter(profiles).items())
    is_known = any(part in places for part in parts for _, places in _FAMILIES)
    if not is_known:
        fits = sum(compute for compute, _ in parts) <= _MOST_COMPUTE
    else:
        fits = any(_fit(places, parts) for _, places in known or families)
    if not fits:
        raise TopologyError(
            f"GPU {gpu}: {listed} do not fit on one GPU; expected what `nvidia-smi mig -lgi` shows"
        )


def _instances(profiles: Sequence[str]) -> list[tuple[int, int]]:
    """(compute slices, GB) of each GPU instance; compute instances share as few as they can."""
    parts: list[tuple[int, int]] = []
    shared: Counter[tuple[int, int]] = Counter()
    for profile in profiles:
        match = _PROFILE.match(profile)
        assert match is not None, f"{profile!r} was not checked"
        part = int(match[2]), int(match[3])
        if match[1]:
            shared[part] += int(match[1])
        else:
            parts.append(part)
    for part, compute in shared.items():
        parts += [part] * -(-compute // part[0])
    return parts


def _fit(places: _Places, parts: Sequence[tuple[int, int]], taken: int = 0) -> bool:
    """Whether the parts lie beside each other on one GPU; the largest are laid first."""
    if sum(compute for compute, _ in parts) > _MOST_COMPUTE:
        return False
    if not parts:
        return True
    first, *others = sorted(parts, key=lambda part: -places[part][0])
    size, starts = places[first]
    masks = (((1 << size) - 1) << start for start in starts)
    return any(not mask & taken and _fit(places, others, taken | mask) for mask in masks)


def _sliced(
    whole: NodeTopology, parents: tuple[int, ...], profiles: tuple[str, ...]
) -> SlicedTopology:
    count = len(parents)
    kinds = tuple(
        tuple(SELF if a == b else links.UNKNOWN for a in range(count)) for b in range(count)
    )
    slowest = links.LinkRates().gbps(links.UNKNOWN)
    return SlicedTopology(
        name=whole.name,
        source=whole.source,
        kinds=kinds,
        bandwidth_gbps=np.where(np.eye(count, dtype=bool), 0.0, slowest),
        numa=tuple(whole.numa[gpu] for gpu in parents),
        cpus=tuple(whole.cpus[gpu] for gpu in parents),
        model=whole.model,
        whole=whole,
        parents=parents,
        profiles=profiles,
    )
