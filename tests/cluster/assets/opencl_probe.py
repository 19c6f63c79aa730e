"""opencl_probe.py NTH...: what calls, bytes and kernels take on these OpenCL devices, by number.

A line for each run, as `gputopo remote measure` reads it: its calls of OpenCL that reach the
device, GB moved, kernels, seconds. Each run is done five times, of which the median counts.
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
#: Calls, copies there and back, MiB of each copy, kernels.
RUNS = [
    *((calls, 0, 0, 0) for calls in (50, 200, 800)),
    *((0, 2, mib, 0) for mib in (1, 4, 16)),
    *((0, 0, 0, kernels) for kernels in (1, 3)),
    (100, 2, 4, 1),
]


def main(devices):
    found = [one for platform in cl.get_platforms() for one in platform.get_devices()]
    for nth in devices:
        context = cl.Context([found[nth]])
        queue = cl.CommandQueue(context)
        spin = cl.Kernel(cl.Program(context, SPIN).build(), "spin")
        there = cl.Buffer(context, cl.mem_flags.READ_WRITE, 16 << 20)
        cl.enqueue_copy(queue, there, np.zeros(1, np.float32))

        def start(steps, queue=queue, spin=spin, there=there):
            spin(queue, (1,), (1,), there, np.int32(steps))
            queue.finish()

        def copies(mib, queue=queue, there=there):
            cl.enqueue_copy(queue, there, HERE[: mib << 18])
            cl.enqueue_copy(queue, HERE[: mib << 18], there)

        for run in RUNS:
            took = [seconds(run, start, copies) for _ in range(5)]
            calls, pairs, mib, kernels = run
            line = {"calls": calls + 2 * pairs + kernels, "gb": 2 * pairs * mib * 2**20 / 1e9}
            print(json.dumps({**line, "kernels": kernels, "seconds": statistics.median(took)}))


def seconds(run, start, copies):
    calls, pairs, mib, kernels = run
    began = time.perf_counter()
    for _ in range(calls):
        start(0)
    for _ in range(pairs):
        copies(mib)
    for _ in range(kernels):
        start(STEPS)
    return time.perf_counter() - began


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]])
    sys.stdout.flush()
    # With a program's last context PoCL 6.0 takes down its driver, whose threads may still run.
    os._exit(0)
