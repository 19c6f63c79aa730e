/* pocl-compute product [SIZE] [SECONDS] [NTH]: computes on OpenCL devices and checks every number.
 *
 * A product of two matrices of SIZE rows, a whole one on each device, one after the other. Prints a line for each
 * device, in the order of the platforms; with NTH for that device alone:
 *     0.0 0-63 equal 17
 *     1.0 0-63 equal 17
 * which is platform and device there, its rows, and how often they were computed: until SECONDS (0) have passed, and
 * three times at least. The host computes the same in plain C. Numbers are small and whole, so that it is exact.
 * Exit 1 at any difference or error, each told in one line.
 */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_DEVICES = 64, MOST_SIZE = 1024, LEAST_TIMES = 3 };

/* A work-group computes a row. */
static const char *SOURCE =
    "__kernel void product(__global const float *a, __global const float *b, __global float *out, int n)"
    "{ int row = get_group_id(0), column = get_local_id(0); float sum = 0;"
    "  for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];"
    "  out[row * n + column] = sum; }\n";

/* A device with a context and a queue of its own. */
struct device {
    cl_device_id id;
    char name[32];
    cl_context context;
    cl_command_queue queue;
    cl_kernel kernel;
    cl_mem in_a, in_b, out;
};

static int n = 64;
static double seconds;
static size_t bytes;  /* of each matrix */
static float *a, *b, *found, *expected;

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
    bytes = (size_t)n * n * sizeof(float);
    a = malloc(bytes), b = malloc(bytes), found = malloc(bytes), expected = malloc(bytes);
    if (!a || !b || !found || !expected) {
        fprintf(stderr, "pocl-compute: no memory for a size of %d\n", n);
        exit(1);
    }
    for (int i = 0; i < n * n; i++) {
        a[i] = (float)(1 + ((dice = dice * 1664525 + 1013904223) >> 28));
        b[i] = (float)(1 + ((dice = dice * 1664525 + 1013904223) >> 28));
    }
    for (int row = 0; row < n; row++)
        for (int column = 0; column < n; column++) {
            float sum = 0;
            for (int k = 0; k < n; k++)
                sum += a[row * n + k] * b[k * n + column];
            expected[row * n + column] = sum;
        }
}

static void prepare(struct device *one)
{
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
    one->kernel = clCreateKernel(program, "product", &code);
    check(code, "kernel");
    one->in_a = clCreateBuffer(one->context, CL_MEM_READ_ONLY, bytes, NULL, &code);
    check(code, "buffer");
    one->in_b = clCreateBuffer(one->context, CL_MEM_READ_ONLY, bytes, NULL, &code);
    check(code, "buffer");
    one->out = clCreateBuffer(one->context, CL_MEM_WRITE_ONLY, bytes, NULL, &code);
    check(code, "buffer");
    check(clEnqueueWriteBuffer(one->queue, one->in_b, CL_TRUE, 0, bytes, b, 0, NULL, NULL), "write");
    check(clSetKernelArg(one->kernel, 0, sizeof one->in_a, &one->in_a), "argument");
    check(clSetKernelArg(one->kernel, 1, sizeof one->in_b, &one->in_b), "argument");
    check(clSetKernelArg(one->kernel, 2, sizeof one->out, &one->out), "argument");
    check(clSetKernelArg(one->kernel, 3, sizeof n, &n), "argument");
    clReleaseProgram(program);
}

static void release(struct device *one)
{
    clReleaseMemObject(one->in_a), clReleaseMemObject(one->in_b), clReleaseMemObject(one->out);
    clReleaseKernel(one->kernel), clReleaseCommandQueue(one->queue), clReleaseContext(one->context);
}

/* Once, from the numbers of the host to what was found. */
static void multiply(struct device *one)
{
    size_t grid = (size_t)n * n, row = n;
    memset(found, 0, bytes);
    check(clEnqueueWriteBuffer(one->queue, one->in_a, CL_FALSE, 0, bytes, a, 0, NULL, NULL), "write");
    check(clEnqueueNDRangeKernel(one->queue, one->kernel, 1, NULL, &grid, &row, 0, NULL, NULL), "kernel");
    check(clEnqueueReadBuffer(one->queue, one->out, CL_FALSE, 0, bytes, found, 0, NULL, NULL), "read");
    check(clFinish(one->queue), "finish");
}

/* Again and again; is any number of the device wrong? */
static int compute(struct device *one)
{
    int times = 0, is_wrong = 0;
    prepare(one);
    for (double end = now() + seconds; !is_wrong && (times < LEAST_TIMES || now() < end); times++) {
        multiply(one);
        is_wrong = memcmp(found, expected, bytes) != 0;
    }
    printf("%s 0-%d %s %d\n", one->name, n - 1, is_wrong ? "WRONG" : "equal", times);
    fflush(stdout);
    release(one);
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
    n = argc > 2 ? atoi(argv[2]) : n;
    seconds = argc > 3 ? atof(argv[3]) : 0;
    if (argc < 2 || strcmp(argv[1], "product") || n < 1 || n > MOST_SIZE || seconds < 0) {
        fprintf(stderr, "pocl-compute: expected product, a size from 1 to %d, and seconds\n", MOST_SIZE);
        return 2;
    }
    make_numbers();
    int count = all_devices(devices), from = only < 0 ? 0 : only, to = only < 0 ? count : only + 1;
    if (from >= count) {
        fprintf(stderr, "pocl-compute: %d devices, none to compute on\n", count);
        return 1;
    }
    for (int i = from; i < to; i++)
        is_wrong |= compute(&devices[i]);
    return is_wrong;
}
