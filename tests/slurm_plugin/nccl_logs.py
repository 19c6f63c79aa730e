"""Logs in the output format that nccl-tests documents; their numbers are made up, not measured."""

from collections.abc import Sequence
from pathlib import Path

#: Where the GPUs of the DGX-1V of these logs sit, GPU 0 first.
DGX1V_BUSES = ("06", "07", "0a", "0b", "85", "86", "89", "8a")
SIZES = tuple(1 << shift for shift in range(20, 29))  # 1 MiB to 256 MiB
#: nccl-tests' ratio of bus to algorithm bandwidth, over (n - 1) / n.
FACTORS = {"all_reduce_perf": 2.0, "all_gather_perf": 1.0, "reduce_scatter_perf": 1.0}


def rank_line(
    rank: int, address: str, name: str = "Tesla V100-SXM2-16GB", host: str = "dgx1"
) -> str:
    process = f"Rank {rank:2d} Group  0 Pid {4200 + rank} on {host:>10}"
    return f"#  {process} device {rank:2d} [{address}] {name}"


def row(
    size: int,
    busbw: float,
    ranks: int,
    *,
    test: str = "all_reduce_perf",
    wrong: str = "0",
    in_place: float | None = None,
) -> str:
    """One message size; small messages do not reach the bus bandwidth."""
    reached = busbw * size / (size + (4 << 20))
    there = reached if in_place is None else in_place
    redop = "none" if test == "all_gather_perf" else "sum"
    factor = FACTORS[test] * (ranks - 1) / ranks
    cells = []
    for bus in (reached, there):
        algbw = bus / factor if factor else 300.0  # one GPU copies within itself
        cells.append(f"{size / algbw / 1e3:9.1f} {algbw:7.2f} {bus:7.2f} {wrong:>6}")
    return f"{size:12d} {size // 4:13d}     float {redop:>7}      -1 {cells[0]} {cells[1]}"


def log(
    gpus: Sequence[int],
    busbw: float,
    *,
    buses: Sequence[str] = DGX1V_BUSES,
    form: str = "0000:{bus}:00",
    name: str = "Tesla V100-SXM2-16GB",
    host: str = "dgx1",
    test: str = "all_reduce_perf",
    named: bool = True,
    sizes: Sequence[int] = SIZES,
    wrong: str = "0",
    in_place: float | None = None,
) -> str:
    """One run over these GPUs, whose largest messages reach some 98 % of `busbw` GB/s."""
    addresses = [form.format(bus=buses[gpu]) for gpu in gpus]
    head = [
        "# nccl-tests version 2.17.6 nccl-headers=22602 nccl-library=22602",
        *([f"# Collective test starting: {test}"] if named else []),
        f"# nThread 1 nGpus {len(gpus)} minBytes {sizes[0]} maxBytes {sizes[-1]} step: 2(factor)"
        " warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0",
        "#",
        "# Using devices",
        *(rank_line(rank, address, name, host) for rank, address in enumerate(addresses)),
        "#",
        "#                                                              out-of-place"
        "                       in-place",
        "#       size         count      type   redop    root     time   algbw   busbw #wrong"
        "     time   algbw   busbw #wrong",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)"
        "            (us)  (GB/s)  (GB/s)",
    ]
    rows = [
        row(size, busbw, len(gpus), test=test, wrong=wrong, in_place=in_place) for size in sizes
    ]
    tail = ["# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {busbw / 2:g}", "#"]
    return "\n".join([*head, *rows, *tail]) + "\n"


def write(folder: Path, measured: dict[tuple[int, ...], float], **more: object) -> list[str]:
    """A log per set; the paths."""
    paths = []
    for gpus, busbw in measured.items():
        path = folder / f"{'-'.join(map(str, gpus))}.log"
        path.write_text(log(gpus, busbw, **more))
        paths.append(str(path))
    return paths
