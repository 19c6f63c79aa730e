/* pocl-matrix [SIZE] [SECONDS] [NTH]: a matrix product on OpenCL devices, checked number by number.
 *
 * Prints a line for each device, or for the NTH alone, in the order of the platforms:
 *     0.0 64x64 equal 17
 *     1.0 64x64 equal 3
 * which is platform and device there, and how often it was computed: until SECONDS (0) have passed.
 * Entries are small whole numbers, so that single precision is exact and a single wrong one shows.
 * Exit 1 at any difference or error, each told in one line.
 */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_DEVICES = 64, MOST_SIZE = 1024 };

static const char *SOURCE =
    "__kernel void product(__global const float *a, __global const float *b, __global float *c, int n)"
    "{ int row = get_global_id(0), column = get_global_id(1); float sum = 0;"
    "  for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];"
    "  c[row * n + column] = sum; }";

static int n = 64;
static double seconds;
static float *a, *b, *found, *expected;

static void check(cl_int code, const char *what)
{
    if (code != CL_SUCCESS) {
        fprintf(stderr, "pocl-matrix: %s: OpenCL error %d\n", what, code);
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
    size_t all = (size_t)n * n;
    a = malloc(all * sizeof *a), b = malloc(all * sizeof *b);
    found = malloc(all * sizeof *found), expected = calloc(all, sizeof *expected);
    if (!a || !b || !found || !expected) {
        fprintf(stderr, "pocl-matrix: no memory for %d x %d\n", n, n);
        exit(1);
    }
    for (size_t i = 0; i < all; i++) {
        a[i] = (float)((i * 7 + 3) % 11);
        b[i] = (float)((i * 5 + 1) % 13);
    }
    for (int row = 0; row < n; row++)
        for (int k = 0; k < n; k++)
            for (int column = 0; column < n; column++)
                expected[row * n + column] += a[row * n + k] * b[k * n + column];
}

/* How often the product was computed; 0 where one was wrong. */
static int multiply(cl_device_id device)
{
    size_t bytes = (size_t)n * n * sizeof(float), grid[2] = {(size_t)n, (size_t)n};
    cl_int code;
    int times = 0;
    char log[4096] = "";
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    check(code, "context");
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &code);
    check(code, "queue");
    cl_program program = clCreateProgramWithSource(context, 1, &SOURCE, NULL, &code);
    check(code, "program");
    code = clBuildProgram(program, 1, &device, "", NULL, NULL);
    if (code != CL_SUCCESS) {
        clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
        fprintf(stderr, "pocl-matrix: %s\n", log);
    }
    check(code, "build");
    cl_kernel kernel = clCreateKernel(program, "product", &code);
    check(code, "kernel");
    cl_mem in_a = clCreateBuffer(context, CL_MEM_READ_ONLY, bytes, NULL, &code);
    check(code, "buffer");
    cl_mem in_b = clCreateBuffer(context, CL_MEM_READ_ONLY, bytes, NULL, &code);
    check(code, "buffer");
    cl_mem out = clCreateBuffer(context, CL_MEM_WRITE_ONLY, bytes, NULL, &code);
    check(code, "buffer");
    check(clEnqueueWriteBuffer(queue, in_a, CL_TRUE, 0, bytes, a, 0, NULL, NULL), "write");
    check(clEnqueueWriteBuffer(queue, in_b, CL_TRUE, 0, bytes, b, 0, NULL, NULL), "write");
    check(clSetKernelArg(kernel, 0, sizeof in_a, &in_a), "argument");
    check(clSetKernelArg(kernel, 1, sizeof in_b, &in_b), "argument");
    check(clSetKernelArg(kernel, 2, sizeof out, &out), "argument");
    check(clSetKernelArg(kernel, 3, sizeof n, &n), "argument");
    for (double end = now() + seconds;;) {
        memset(found, 0, bytes);
        check(clEnqueueNDRangeKernel(queue, kernel, 2, NULL, grid, NULL, 0, NULL, NULL), "kernel");
        check(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, bytes, found, 0, NULL, NULL), "read");
        if (memcmp(found, expected, bytes) != 0)
            return 0;
        times++;
        if (now() >= end)
            break;
    }
    clReleaseMemObject(in_a), clReleaseMemObject(in_b), clReleaseMemObject(out);
    clReleaseKernel(kernel), clReleaseProgram(program);
    clReleaseCommandQueue(queue), clReleaseContext(context);
    return times;
}

static unsigned all_devices(cl_device_id *devices, char names[][32])
{
    cl_platform_id platforms[16];
    cl_uint count = 0, found_here = 0, total = 0;
    check(clGetPlatformIDs(16, platforms, &count), "platforms");
    for (cl_uint i = 0; i < count && i < 16; i++)
        if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, MOST_DEVICES - total, devices + total,
                           &found_here) == CL_SUCCESS)
            for (cl_uint j = 0; j < found_here && total < MOST_DEVICES; j++)
                snprintf(names[total++], sizeof names[0], "%u.%u", i, j);
    return total;
}

int main(int argc, char **argv)
{
    static cl_device_id devices[MOST_DEVICES];
    static char names[MOST_DEVICES][32];
    int is_wrong = 0, done = 0, only = argc > 3 ? atoi(argv[3]) : -1;
    n = argc > 1 ? atoi(argv[1]) : n;
    seconds = argc > 2 ? atof(argv[2]) : 0;
    if (n < 1 || n > MOST_SIZE || seconds < 0) {
        fprintf(stderr, "pocl-matrix: expected a size from 1 to %d, and seconds\n", MOST_SIZE);
        return 2;
    }
    make_numbers();
    int count = (int)all_devices(devices, names);
    for (int i = 0; i < count; i++) {
        if (only >= 0 && i != only)
            continue;
        int times = multiply(devices[i]);
        printf("%s %dx%d %s %d\n", names[i], n, n, times ? "equal" : "WRONG", times);
        fflush(stdout);
        is_wrong |= !times, done++;
    }
    return is_wrong || !done;
}
