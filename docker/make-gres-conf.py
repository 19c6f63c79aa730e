"""Writes the cluster's gres.conf to standard output: the one place it is made.

Links are NVLink (or Infinity Fabric) counts of the public machine matrices.
"""

from __future__ import annotations

# nodes, Type, GPUs, cores of a socket, links as (gpu, gpu, count)
MACHINES: list[tuple[str, str, int, int, list[tuple[int, int, int]]]] = [
    (
        "dgx[1-2]", "v100", 8, 8,
        [(0, 1, 1), (0, 2, 1), (0, 3, 2), (0, 4, 2), (1, 2, 2), (1, 3, 1), (1, 5, 2), (2, 3, 2),
         (2, 6, 2), (3, 7, 1), (4, 5, 1), (4, 6, 1), (4, 7, 2), (5, 6, 2), (5, 7, 1), (6, 7, 2)],
    ),
    ("minsky1", "p100", 4, 4, [(0, 1, 2), (2, 3, 2)]),
    ("bridged1", "a100", 8, 8, [(0, 2, 12), (1, 3, 12), (4, 5, 12), (6, 7, 12)]),
    (
        "amd1", "mi250x", 8, 8,
        [(0, 1, 4), (2, 3, 4), (4, 5, 4), (6, 7, 4), (0, 2, 1), (0, 6, 2), (1, 3, 2), (1, 5, 1),
         (2, 4, 2), (3, 7, 1), (4, 6, 1), (5, 7, 2)],
    ),
]  # fmt: skip


def lines_of(
    nodes: str, kind: str, gpus: int, socket_cores: int, links: list[tuple[int, int, int]]
) -> list[str]:
    """One line per GPU of a machine, in index order."""
    counts = [[0] * gpus for _ in range(gpus)]
    for a, b, count in links:
        counts[a][b] = counts[b][a] = count
    lines = []
    for gpu in range(gpus):
        counts[gpu][gpu] = -1
        first = 0 if gpu < gpus // 2 else socket_cores
        row = ",".join(map(str, counts[gpu]))
        lines.append(
            f"NodeName={nodes} Name=gpu Type={kind} File=/dev/fakegpu{gpu} "
            f"Cores={first}-{first + socket_cores - 1} Links={row}"
        )
    return lines


if __name__ == "__main__":
    print("# Made by docker/make-gres-conf.py")
    for machine in MACHINES:
        print("\n".join(lines_of(*machine)))
