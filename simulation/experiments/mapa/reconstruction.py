"""Execution times, which MAPA (SC'21) draws (Figures 2b, 6, 13, 16) and prints few of.

A job's time is taken as

    best_s * ((1 - c) + c * SATURATED_GBPS / min(EffBW, SATURATED_GBPS))

(Amdahl's law over effective bandwidth); one GPU does not communicate. The numbers were fixed from
the text before anything was measured: change them only with a reason from the paper.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Section 5.2: "improvement is limited once the effective bandwidth is past 50 GBps".
SATURATED_GBPS = 50.0


@dataclass(frozen=True, slots=True)
class NeuralNet:
    """A training job: its time on saturating links, its communication share `c`, and source."""

    name: str
    is_sensitive: bool
    best_s: float
    communication: float
    source: str


#: Section 4: a uniform mix of the networks of Figure 5. The 25th percentile of effective
#: bandwidth that section 4.1 prints (12.33 GB/s) stands for a bad allocation.
NETWORKS = (
    NeuralNet(
        "vgg-16",
        True,
        378.0,
        0.35,
        "section 4.1: 785 s badly, 378 s well placed, so c * (50 / 12.33 - 1) = 785 / 378 - 1",
    ),
    NeuralNet("alexnet", True, 374.0, 0.12, "section 4.1: 511 and 374 s, as vgg-16"),
    NeuralNet(
        "inception-v3",
        True,
        500.0,
        0.05,
        "guessed: the paper calls it sensitive but without a long tail; the longest, because the"
        " 75th percentile of all sensitive jobs is 498 to 540 s",
    ),
    NeuralNet("resnet-50", True, 450.0, 0.12, "guessed: trend as alexnet, time below inception"),
    NeuralNet("googlenet", False, 300.0, 0.01, "guessed: insensitive, under 3 % (Figures 2b, 6a)"),
    NeuralNet("caffenet", False, 300.0, 0.01, "guessed: insensitive, trend as googlenet"),
)

#: Factors on every `c`, to see what depends on them. `steep` gives vgg-16 0.64: then it is three
#: times as slow on PCIe (10.09 GB/s) as on a double NVLink (39.08 GB/s), as in Figure 2b.
CURVES = {"text": 1.0, "flat": 0.5, "steep": 0.64 / 0.35}

#: Section 4: jobs, and GPUs per job, uniform.
JOBS = 300
SIZES = (1, 5)
