"""Execution times, which MAPA (SC'21) draws (Figures 2b, 6, 13, 16) and prints few of.

A job's time is taken as

    best_s * ((1 - c) + c * SATURATED_GBPS / min(EffBW, SATURATED_GBPS))

(Amdahl's law over effective bandwidth); one GPU does not communicate. Every number comes from the
paper's text, or is called a guess: change them only with a reason from the paper.
"""

from __future__ import annotations

from typing import NamedTuple

#: Section 5.2: "improvement is limited once the effective bandwidth is past 50 GBps".
SATURATED_GBPS = 50.0


class NeuralNet(NamedTuple):
    """A training job: its time on saturating links, its communication share `c`, and source."""

    name: str
    is_sensitive: bool
    best_s: float
    communication: float
    source: str


#: Section 4: a uniform mix of the networks of Figure 5.
NETWORKS = (
    NeuralNet(
        "vgg-16",
        True,
        378.0,
        0.64,
        "section 4.1: 378 s well placed; section 2.1 and Figure 2b: three times as long on PCIe"
        " (GPUs 1 and 6; 10.09 GB/s by eq. 2) as on a double NVLink (1 and 5; 39.08 GB/s)",
    ),
    NeuralNet(
        "alexnet",
        True,
        374.0,
        0.22,
        "section 4.1: 511 s badly and 374 s well placed, on the bandwidth on which vgg-16 takes"
        " 785 s: c = 0.64 * (511 / 374 - 1) / (785 / 378 - 1)",
    ),
    NeuralNet(
        "inception-v3",
        True,
        500.0,
        0.09,
        "guessed: the paper calls it sensitive but without a long tail; the longest, because the"
        " 75th percentile of all sensitive jobs is 498 to 540 s",
    ),
    NeuralNet("resnet-50", True, 450.0, 0.22, "guessed: trend as alexnet, time below inception"),
    NeuralNet("googlenet", False, 300.0, 0.01, "guessed: insensitive, under 3 % (Figures 2b, 6a)"),
    NeuralNet("caffenet", False, 300.0, 0.01, "guessed: insensitive, trend as googlenet"),
)

#: Factors on every `c`, to see what depends on them; the first is the default. `low` is what
#: section 4.1's times ask for if 785 s is the time on 12.33 GB/s, the lowest bandwidth that the
#: text prints: vgg-16 has 0.35 then. `lowest` is half of that.
CURVES = {"figure-2b": 1.0, "low": 0.35 / 0.64, "lowest": 0.175 / 0.64}

#: Section 4: jobs, and GPUs per job, uniform.
JOBS = 300
SIZES = (1, 5)
