"""An n-body simulation and a reduction, dealt out over all OpenCL devices, compared with numpy.

Every device computes a share in each step and gets all positions back, so each step waits for the
slowest. Prints a line for each of the two, and exits with 1 where a number differs. With SECONDS
and NTH that device alone does it, again and again for so long. With `chain` the lent devices share
one context and hand a buffer from one to the next.
"""

import os
import sys
import time

import numpy as np
import pyopencl as cl

BODIES, STEPS, TICK = 240, 3, 0.01
NUMBERS, GROUP = 30720, 64
SOURCE = """
__kernel void pull(__global const float4 *at, __global float4 *out, int first, int bodies) {
    int own = first + get_global_id(0);
    float4 sum = (float4)(0);
    for (int i = 0; i < bodies; i++) {
        float4 d = at[i] - at[own];
        float r2 = d.x * d.x + d.y * d.y + d.z * d.z + 0.01f;
        sum += d * (at[i].w / (r2 * sqrt(r2)));
    }
    out[get_global_id(0)] = (float4)(sum.x, sum.y, sum.z, 0);
}
__kernel void add(__global const int *in, __global int *out, __local int *part) {
    int own = get_local_id(0);
    part[own] = in[get_global_id(0)];
    for (int width = get_local_size(0) / 2; width > 0; width /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (own < width) part[own] += part[own + width];
    }
    if (own == 0) out[get_group_id(0)] = part[0];
}
"""
FLAGS = cl.mem_flags


class Device:
    """A device with a context and a queue of its own."""

    def __init__(self, device):
        self.context = cl.Context([device])
        self.queue = cl.CommandQueue(self.context)
        program = cl.Program(self.context, SOURCE).build()
        self.pull, self.add = cl.Kernel(program, "pull"), cl.Kernel(program, "add")

    def input(self, array):
        return cl.Buffer(self.context, FLAGS.READ_ONLY | FLAGS.COPY_HOST_PTR, hostbuf=array)

    def output(self, size):
        return cl.Buffer(self.context, FLAGS.WRITE_ONLY, size)

    def pulls(self, bodies, first, count):
        """Starts; the array is filled when the queue is empty."""
        found, out = np.zeros((count, 4), np.float32), self.output(count * 16)
        words = (self.input(bodies), out, np.int32(first), np.int32(len(bodies)))
        self.pull(self.queue, (count,), None, *words)
        cl.enqueue_copy(self.queue, found, out, is_blocking=False)
        return found

    def sums(self, numbers):
        found = np.zeros(len(numbers) // GROUP, np.int32)
        out = self.output(found.nbytes)
        local = cl.LocalMemory(GROUP * 4)
        self.add(self.queue, (len(numbers),), (GROUP,), self.input(numbers), out, local)
        cl.enqueue_copy(self.queue, found, out, is_blocking=False)
        return found


def by_numpy(bodies):
    d = bodies[None, :, :3].astype(float) - bodies[:, None, :3]
    r2 = (d**2).sum(2) + 0.01
    return (d * (bodies[None, :, 3] / (r2 * np.sqrt(r2)))[:, :, None]).sum(1)


def n_body(devices, bodies):
    """The largest error of a force in some steps, as a share of the largest force."""
    speed, worst, share = np.zeros((len(bodies), 3)), 0.0, len(bodies) // len(devices)
    for _ in range(STEPS):
        parts = [one.pulls(bodies, i * share, share) for i, one in enumerate(devices)]
        for one in devices:
            one.queue.finish()
        pull, expected = np.concatenate(parts)[:, :3], by_numpy(bodies)
        worst = max(worst, float(np.abs(pull - expected).max() / np.abs(expected).max()))
        speed += pull * TICK
        bodies[:, :3] += (speed * TICK).astype(np.float32)
    return worst


def reduction(devices, numbers):
    """The sum of all numbers, of which every device added up its share."""
    parts = np.split(numbers, len(devices))
    sums = [one.sums(part) for one, part in zip(devices, parts, strict=True)]
    for one in devices:
        one.queue.finish()
    return sum(int(part.sum()) for part in sums)


def chain(platforms):
    """One context of a platform's devices: each adds a number to a buffer that the one before it
    wrote, through an event and without, twice around."""
    devices = max((platform.get_devices() for platform in platforms), key=len)
    context = cl.Context(devices)
    queues = [cl.CommandQueue(context, one) for one in devices]
    source = "__kernel void more(__global int *x, int by) { x[get_global_id(0)] += by; }"
    more = cl.Kernel(cl.Program(context, source).build(), "more")
    start = np.arange(NUMBERS, dtype=np.int32)
    buffer = cl.Buffer(context, FLAGS.READ_WRITE | FLAGS.COPY_HOST_PTR, hostbuf=start)
    before = None
    for number, queue in enumerate(queues * 2):
        more.set_args(buffer, np.int32(number + 1))
        before = cl.enqueue_nd_range_kernel(
            queue, more, (NUMBERS,), None, wait_for=[before] if before else None
        )
        queue.flush()
    found = np.zeros(NUMBERS, np.int32)
    cl.enqueue_copy(queues[0], found, buffer, wait_for=[before])
    added = sum(range(1, 2 * len(queues) + 1))
    is_right = bool((found == start + added).all())
    print(f"chain on {len(devices)} {'equal' if is_right else 'WRONG'}")
    return 0 if is_right else 1


def main(argv):
    if argv == ["chain"]:
        return chain(cl.get_platforms())
    found = [d for platform in cl.get_platforms() for d in platform.get_devices()]
    end = time.monotonic() + (float(argv[0]) if argv else 0)
    devices = [Device(device) for device in (found[int(argv[1]) :][:1] if argv else found)]
    dice = np.random.default_rng(8)
    status = None
    while status is None or (status == 0 and time.monotonic() < end):
        worst = n_body(devices, dice.random((BODIES, 4), dtype=np.float32))
        numbers = dice.integers(-1000, 1000, NUMBERS, dtype=np.int32)
        total = reduction(devices, numbers)
        status = 0 if worst < 1e-4 and total == int(numbers.sum()) else 1
    words = f"on {len(devices)} {'equal' if status == 0 else 'WRONG'}"
    print(f"n-body {words} {worst:.1e}\nreduction {words} {total}")
    return status


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    # With a program's last context PoCL 6.0 takes down its driver, whose threads may still run.
    os._exit(status)
