"""opencl_probe.py NTH... [check | jobs=N]: what calls, bytes, kernels take on OpenCL devices.

Devices by number. A line for each run, as `gputopo remote measure` reads it: its calls of OpenCL
that reach the device, GB moved, GB from buffer to buffer there, kernels, seconds. Each run is done
five times, of which the median counts. `check`: other runs, for a fit to be tried on. `jobs=N`:
runs of bytes alone, while N such probes run at once.
"""

import json
import os
import statistics
import sys
import time

import numpy as np
import pyopencl as cl

SPIN = """__kernel void spin(__global float *x, int n) {
    float s = x[0];
    for (int i = 0; i < n; i++) s = s * 1.0000001f + 0.1f;
    x[0] = s;
}"""
#: The steps of a kernel that counts; others are empty and count as calls.
STEPS = 10**7
#: What is copied; its pages are there before the first run.
HERE = np.ones(16 << 18, np.float32)
#: Calls, copies there and back, MiB of each copy, kernels, copies of 16 MiB on the device.
RUNS = [
    *((calls, 0, 0, 0, 0) for calls in (50, 200, 800)),
    *((0, 2, mib, 0, 0) for mib in (1, 4, 16)),
    *((0, 0, 0, kernels, 0) for kernels in (1, 3)),
    *((0, 0, 0, 0, moves) for moves in (4, 16)),
    (100, 2, 4, 1, 0),
]
CHECKS = [
    (300, 0, 0, 0, 0),
    (20, 3, 8, 0, 0),
    (10, 0, 0, 2, 0),
    (10, 0, 0, 0, 8),
    (200, 3, 8, 2, 4),
    (600, 1, 2, 4, 0),
]
BYTES = [(0, 6, mib, 0, 0) for mib in (4, 8, 16)]


def main(devices, runs, jobs):
    found = [one for platform in cl.get_platforms() for one in platform.get_devices()]
    for nth in devices:
        context = cl.Context([found[nth]])
        queue = cl.CommandQueue(context)
        spin = cl.Kernel(cl.Program(context, SPIN).build(), "spin")
        there, other = (cl.Buffer(context, cl.mem_flags.READ_WRITE, 16 << 20) for _ in "ab")
        cl.enqueue_copy(queue, there, np.zeros(1, np.float32))

        def start(steps, queue=queue, spin=spin, there=there):
            spin(queue, (1,), (1,), there, np.int32(steps))
            queue.finish()

        def copies(mib, queue=queue, there=there):
            cl.enqueue_copy(queue, there, HERE[: mib << 18])
            cl.enqueue_copy(queue, HERE[: mib << 18], there)

        def moved(queue=queue, there=there, other=other):
            cl.enqueue_copy(queue, other, there)
            queue.finish()

        for run in runs:
            took = [seconds(run, start, copies, moved) for _ in range(5)]
            calls, pairs, mib, kernels, moves = run
            line = {"calls": calls + 2 * pairs + kernels + moves, "kernels": kernels, "jobs": jobs}
            line |= {"gb": 2 * pairs * mib * 2**20 / 1e9, "gpu_gb": moves * 2**24 / 1e9}
            print(json.dumps({**line, "seconds": statistics.median(took)}))


def seconds(run, start, copies, moved):
    calls, pairs, mib, kernels, moves = run
    began = time.perf_counter()
    for _ in range(calls):
        start(0)
    for _ in range(pairs):
        copies(mib)
    for _ in range(kernels):
        start(STEPS)
    for _ in range(moves):
        moved()
    return time.perf_counter() - began


if __name__ == "__main__":
    words = sys.argv[1:]
    together = next((int(word[5:]) for word in words if word.startswith("jobs=")), 1)
    chosen = CHECKS if "check" in words else BYTES if together > 1 else RUNS
    main([int(word) for word in words if word.isdecimal()], chosen, together)
    sys.stdout.flush()
    # With a program's last context PoCL 6.0 takes down its driver, whose threads may still run.
    os._exit(0)
