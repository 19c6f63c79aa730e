/* pocl-compute product|nbody|reduction [SIZE] [SECONDS] [NTH]: computes on OpenCL devices and checks every number.
 *
 *     product    of two matrices of SIZE rows, a whole one on each device, one after the other
 *     nbody      steps of SIZE bodies: all devices compute a share, and get all positions for the next step
 *     reduction  of SIZE * 64 products of two numbers to SIZE sums: all devices compute a share
 *
 * Prints a line for each device, in the order of the platforms; with NTH that device alone computes all:
 *     0.0 0-31 equal 17
 *     1.0 32-63 equal 17
 * which is platform and device there, its rows, bodies or sums, and how often they were computed: until
 * SECONDS (0) have passed, and three times at least. The host computes the same in plain C. Numbers are small
 * and whole, so that product and reduction are exact; a body's pull may differ by 0.00001 of the largest.
 * Exit 1 at any difference or error, each told in one line.
 */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_DEVICES = 64, MOST_SIZE = 1024, LEAST_TIMES = 3, SUMMED = 64 };
static const double TICK = 0.05;

/* A work-group computes a row, a body or a sum. */
static const char *SOURCE =
    "#define ARGUMENTS __global const float *a, __global const float *b, __global float *out, int first, int n\n"
    "__kernel void product(ARGUMENTS)"
    "{ int row = first + get_group_id(0), column = get_local_id(0); float sum = 0;"
    "  for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];"
    "  out[row * n + column] = sum; }\n"
    "__kernel void nbody(ARGUMENTS)"
    "{ int own = first + get_group_id(0), axis = get_local_id(0); float sum = 0;"
    "  float3 at = vload3(own, a);"
    "  for (int i = 0; i < n; i++)"
    "  { float3 d = vload3(i, a) - at; float r2 = dot(d, d) + 1;"
    "    sum += b[i] * (a[i * 3 + axis] - a[own * 3 + axis]) / (r2 * sqrt(r2)); }"
    "  out[own * 3 + axis] = sum; }\n"
    "__kernel void reduction(ARGUMENTS)"
    "{ __local float part[64]; int own = get_local_id(0), at = (first + get_group_id(0)) * 64 + own;"
    "  part[own] = a[at] * b[at];"
    "  for (int width = 32; width > 0; width /= 2)"
    "  { barrier(CLK_LOCAL_MEM_FENCE); if (own < width) part[own] += part[own + width]; }"
    "  if (own == 0) out[first + get_group_id(0)] = part[0]; }\n";

/* A device with a context and a queue of its own, and its share of the rows, bodies or sums. */
struct device {
    cl_device_id id;
    char name[32];
    cl_context context;
    cl_command_queue queue;
    cl_kernel kernel;
    cl_mem in_a, in_b, out;
    int first, end;
};

static int n = 64;
static double seconds;
static float *a, *b, *found, *expected;
static double speed[MOST_SIZE * 3];

static void expect_product(void)
{
    for (int row = 0; row < n; row++)
        for (int column = 0; column < n; column++) {
            float sum = 0;
            for (int k = 0; k < n; k++)
                sum += a[row * n + k] * b[k * n + column];
            expected[row * n + column] = sum;
        }
}

static void expect_pulls(void)
{
    for (int own = 0; own < n; own++) {
        double sum[3] = {0};
        for (int i = 0; i < n; i++) {
            double d[3], r2 = 1;
            for (int axis = 0; axis < 3; axis++)
                d[axis] = (double)a[i * 3 + axis] - a[own * 3 + axis], r2 += d[axis] * d[axis];
            for (int axis = 0; axis < 3; axis++)
                sum[axis] += b[i] * d[axis] / (r2 * sqrt(r2));
        }
        for (int axis = 0; axis < 3; axis++)
            expected[own * 3 + axis] = (float)sum[axis];
    }
}

static void expect_sums(void)
{
    for (int i = 0; i < n; i++) {
        expected[i] = 0;
        for (int k = i * SUMMED; k < (i + 1) * SUMMED; k++)
            expected[i] += a[k] * b[k];
    }
}

/* The bodies go on by the pulls that the devices found. */
static void move(void)
{
    for (int i = 0; i < n * 3; i++) {
        speed[i] += found[i] * TICK;
        a[i] += (float)(speed[i] * TICK);
    }
    expect_pulls();
}

/* What a work-group reads and writes, in numbers; 0 stands for SIZE. */
static const struct work {
    const char *name;
    int reads, writes, is_whole_on_each;
    double tolerance;
    void (*expect)(void), (*move)(void);
} WORKS[] = {
    {"product", 0, 0, 1, 0, expect_product, NULL},
    {"nbody", 3, 3, 0, 1e-5, expect_pulls, move},
    {"reduction", SUMMED, 1, 0, 0, expect_sums, NULL},
};
static const struct work *work;
static size_t reads, writes;

static void check(cl_int code, const char *what)
{
    if (code != CL_SUCCESS) {
        fprintf(stderr, "pocl-compute: %s: OpenCL error %d\n", what, code);
        exit(1);
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void make_numbers(void)
{
    unsigned dice = 8;
    reads = work->reads ? work->reads : n, writes = work->writes ? work->writes : n;
    size_t count = n * reads;
    a = malloc(count * sizeof *a), b = malloc(count * sizeof *b);
    found = malloc(n * writes * sizeof *found), expected = malloc(n * writes * sizeof *expected);
    if (!a || !b || !found || !expected) {
        fprintf(stderr, "pocl-compute: no memory for a size of %d\n", n);
        exit(1);
    }
    for (size_t i = 0; i < count; i++) {
        a[i] = (float)(1 + ((dice = dice * 1664525 + 1013904223) >> 28));
        b[i] = (float)(1 + ((dice = dice * 1664525 + 1013904223) >> 28));
    }
}

static void prepare(struct device *one)
{
    size_t bytes = n * reads * sizeof(float);
    cl_int code;
    char log[4096] = "";
    one->context = clCreateContext(NULL, 1, &one->id, NULL, NULL, &code);
    check(code, "context");
    one->queue = clCreateCommandQueue(one->context, one->id, 0, &code);
    check(code, "queue");
    cl_program program = clCreateProgramWithSource(one->context, 1, &SOURCE, NULL, &code);
    check(code, "program");
    code = clBuildProgram(program, 1, &one->id, "", NULL, NULL);
    if (code != CL_SUCCESS) {
        clGetProgramBuildInfo(program, one->id, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
        fprintf(stderr, "pocl-compute: %s\n", log);
    }
    check(code, "build");
    one->kernel = clCreateKernel(program, work->name, &code);
    check(code, "kernel");
    one->in_a = clCreateBuffer(one->context, CL_MEM_READ_ONLY, bytes, NULL, &code);
    check(code, "buffer");
    one->in_b = clCreateBuffer(one->context, CL_MEM_READ_ONLY, bytes, NULL, &code);
    check(code, "buffer");
    one->out = clCreateBuffer(one->context, CL_MEM_WRITE_ONLY, n * writes * sizeof(float), NULL, &code);
    check(code, "buffer");
    check(clEnqueueWriteBuffer(one->queue, one->in_b, CL_TRUE, 0, bytes, b, 0, NULL, NULL), "write");
    check(clSetKernelArg(one->kernel, 0, sizeof one->in_a, &one->in_a), "argument");
    check(clSetKernelArg(one->kernel, 1, sizeof one->in_b, &one->in_b), "argument");
    check(clSetKernelArg(one->kernel, 2, sizeof one->out, &one->out), "argument");
    check(clSetKernelArg(one->kernel, 3, sizeof one->first, &one->first), "argument");
    check(clSetKernelArg(one->kernel, 4, sizeof n, &n), "argument");
    clReleaseProgram(program);
}

static void release(struct device *one)
{
    clReleaseMemObject(one->in_a), clReleaseMemObject(one->in_b), clReleaseMemObject(one->out);
    clReleaseKernel(one->kernel), clReleaseCommandQueue(one->queue), clReleaseContext(one->context);
}

/* Its share, from the numbers of now to what was found; done when the queue is empty. */
static void start(struct device *one)
{
    size_t grid = (one->end - one->first) * reads, at = one->first * writes;
    size_t bytes = (one->end - one->first) * writes * sizeof(float), in = n * reads * sizeof(float);
    check(clEnqueueWriteBuffer(one->queue, one->in_a, CL_FALSE, 0, in, a, 0, NULL, NULL), "write");
    check(clEnqueueNDRangeKernel(one->queue, one->kernel, 1, NULL, &grid, &reads, 0, NULL, NULL), "kernel");
    check(clEnqueueReadBuffer(one->queue, one->out, CL_FALSE, at * sizeof(float), bytes, found + at, 0, NULL, NULL),
          "read");
    check(clFlush(one->queue), "flush");
}

static int is_right(const struct device *one)
{
    double largest = 0;
    for (size_t i = 0; i < n * writes; i++)
        largest = fmax(largest, fabs(expected[i]));
    for (size_t i = one->first * writes; i < one->end * writes; i++)
        if (!(fabs((double)found[i] - expected[i]) <= work->tolerance * largest))
            return 0;
    return 1;
}

/* On these devices at once; is any number of theirs wrong? */
static int compute(struct device *devices, int count)
{
    int times = 0, wrong[MOST_DEVICES] = {0}, is_wrong = 0;
    for (int i = 0; i < count; i++) {
        devices[i].first = n * i / count, devices[i].end = n * (i + 1) / count;
        prepare(&devices[i]);
    }
    for (double end = now() + seconds; !is_wrong && (times < LEAST_TIMES || now() < end); times++) {
        if (times && work->move)
            work->move();
        memset(found, 0, n * writes * sizeof *found);
        for (int i = 0; i < count; i++)
            start(&devices[i]);
        for (int i = 0; i < count; i++)
            check(clFinish(devices[i].queue), "finish");
        for (int i = 0; i < count; i++)
            is_wrong |= (wrong[i] = !is_right(&devices[i]));
    }
    for (int i = 0; i < count; i++) {
        printf("%s %d-%d %s %d\n", devices[i].name, devices[i].first, devices[i].end - 1,
               wrong[i] ? "WRONG" : "equal", times);
        release(&devices[i]);
    }
    fflush(stdout);
    return is_wrong;
}

static int all_devices(struct device *devices)
{
    cl_platform_id platforms[16];
    cl_device_id here[MOST_DEVICES];
    cl_uint count = 0, found_here = 0;
    int total = 0;
    check(clGetPlatformIDs(16, platforms, &count), "platforms");
    for (cl_uint i = 0; i < count && i < 16; i++)
        if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, MOST_DEVICES, here, &found_here) == CL_SUCCESS)
            for (cl_uint j = 0; j < found_here && total < MOST_DEVICES; j++) {
                devices[total].id = here[j];
                snprintf(devices[total++].name, sizeof devices->name, "%u.%u", i, j);
            }
    return total;
}

int main(int argc, char **argv)
{
    static struct device devices[MOST_DEVICES];
    int is_wrong = 0, only = argc > 4 ? atoi(argv[4]) : -1;
    for (size_t i = 0; i < sizeof WORKS / sizeof *WORKS; i++)
        if (argc > 1 && !strcmp(argv[1], WORKS[i].name))
            work = &WORKS[i];
    n = argc > 2 ? atoi(argv[2]) : n;
    seconds = argc > 3 ? atof(argv[3]) : 0;
    if (!work || n < 1 || n > MOST_SIZE || seconds < 0) {
        fprintf(stderr, "pocl-compute: expected product, nbody or reduction, a size from 1 to %d, and seconds\n",
                MOST_SIZE);
        return 2;
    }
    make_numbers();
    work->expect();
    int count = all_devices(devices), from = only < 0 ? 0 : only, to = only < 0 ? count : only + 1;
    if (from >= count) {
        fprintf(stderr, "pocl-compute: %d devices, none to compute on\n", count);
        return 1;
    }
    int step = work->is_whole_on_each ? 1 : to - from;
    for (int i = from; i < to; i += step)
        is_wrong |= compute(&devices[i], step);
    return is_wrong;
}
