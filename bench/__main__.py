"""`python -m bench [NAME ...]`: run the benchmarks, print one JSON object per figure."""

from __future__ import annotations

import importlib
import sys

from bench.measure import Benchmark

#: name -> module with a `run()`; imported only when asked for.
BENCHMARKS = {
    "place": "bench.place",
    "replay": "bench.kept.replay",
    "growth": "bench.kept.growth",
    "reload": "bench.kept.reload",
    "parts": "bench.kept.parts",
    "ahead": "bench.kept.ahead",
    "submit": "bench.live.submit",
    "slots": "bench.live.slots",
    "slots-many": "bench.live.slots_many",
    "start": "bench.live.start",
    "start-many": "bench.live.start_many",
    "start-large": "bench.live.large.start_large",
    "in-step": "bench.live.in_step",
    "launch": "bench.live.launch",
    "loan-start": "bench.live.placed.loan_start",
    "quality": "bench.live.placed.quality",
    "slices": "bench.live.placed.slices",
    "packing": "bench.simulated.packing",
    "harm": "bench.simulated.harm",
    "blocks": "bench.simulated.blocks",
    "rails": "bench.simulated.rails",
    "replay-trace": "bench.live.large.replay_trace",
    "lending-day": "bench.live.large.lending_day",
    "packing-live": "bench.live.large.packing",
    "blocks-live": "bench.live.large.blocks",
    "mixed-live": "bench.live.large.mixed",
    "simulate": "bench.simulated.simulate",
    "topo-aware": "bench.topo_aware",
    "drmaestro": "bench.drmaestro",
    "r-queue": "bench.r_queue",
    "genie": "bench.genie",
    "wire": "bench.lent.wire",
    "flood": "bench.lent.flood",
    "soak": "bench.live.soak",
    "hostile": "bench.hostile",
    "page": "bench.page",
}


def main(names: list[str]) -> int:
    """Run the named benchmarks (all by default). RET: 1 if a figure misses its bar."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark {unknown[0]!r}; there are: {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    missed = 0
    for name in names or BENCHMARKS:
        run: Benchmark = importlib.import_module(BENCHMARKS[name]).run
        for figure in run():
            print(figure.line(), flush=True)
            missed += figure.ok is False
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
