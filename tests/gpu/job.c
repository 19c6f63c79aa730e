/* A CUDA program by the driver API: on every GPU that it sees, a vector sum and a matrix product with their numbers checked, then the
 * time of small calls and of large copies. One line of JSON for each GPU; exit 1 with one line where anything is wrong.
 *
 *     job [SIZE [CALLS [MIB]]]    numbers in a vector (1000), small calls timed (0), MiB of each copy timed (0)
 *
 * It finds libcuda.so.1 as every CUDA program does, when it starts to run: the driver's own, or a middleware's in front of it. */
#define _GNU_SOURCE
#include "driver.h"
#include "kernels.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MEMBER(name, parameters) int(*name) parameters;
static struct {
    DRIVER_CALLS(MEMBER)
} driver;

static unsigned long calls, bytes;

#define TRY(name, ...)                                                                                                         \
    do {                                                                                                                       \
        int result_ = driver.name(__VA_ARGS__);                                                                                \
        calls++;                                                                                                               \
        if (result_)                                                                                                           \
            fail(#name ": CUDA error %d", result_);                                                                            \
    } while (0)

static void fail(const char *format, ...)
{
    va_list rest;
    va_start(rest, format);
    fflush(stdout);
    vfprintf(stderr, format, rest);
    fputc('\n', stderr);
    va_end(rest);
    exit(1);
}

static void load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        fail("no driver library: %s", dlerror());
#define LOOK_UP(name, parameters)                                                                                              \
    if (!(*(void **)&driver.name = dlsym(library, #name)))                                                                     \
        fail("libcuda.so.1 has no %s", #name);
    DRIVER_CALLS(LOOK_UP)
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static address_t on_gpu(const float *numbers, size_t size)
{
    address_t address = 0;
    TRY(cuMemAlloc_v2, &address, size);
    if (numbers) {
        TRY(cuMemcpyHtoD_v2, address, numbers, size);
        bytes += size;
    }
    return address;
}

/* Runs the kernel on a, b of `size` numbers; the result in c. */
static void compute(void *module, const char *name, const float *a, const float *b, float *c, unsigned int n, size_t numbers)
{
    bool is_product = !strcmp(name, MATRIX_PRODUCT);
    unsigned int side = is_product ? 16 : 256, blocks = (n + side - 1) / side;
    size_t size = numbers * sizeof(float);
    void *function = NULL;
    TRY(cuModuleGetFunction, &function, module, name);
    address_t at[3] = {on_gpu(a, size), on_gpu(b, size), on_gpu(NULL, size)};
    void *parameters[] = {&at[0], &at[1], &at[2], &n};
    TRY(cuLaunchKernel, function, blocks, is_product ? blocks : 1, 1, side, is_product ? side : 1, 1, 0, NULL, parameters, NULL);
    TRY(cuCtxSynchronize);
    TRY(cuMemcpyDtoH_v2, c, at[2], size);
    bytes += size;
    for (int i = 0; i < 3; i++)
        TRY(cuMemFree_v2, at[i]);
}

static float *numbers_of(size_t count, unsigned int seed)
{
    float *numbers = malloc(count * sizeof(float));
    if (!numbers)
        fail("no memory for %zu numbers", count);
    /* Small whole numbers: every sum of theirs is exact. */
    for (size_t i = 0; i < count; i++)
        numbers[i] = (float)((i * 7 + seed) % 13);
    return numbers;
}

static void check_sum(void *module, unsigned int n)
{
    float *a = numbers_of(n, 1), *b = numbers_of(n, 5), *c = numbers_of(n, 0);
    compute(module, VECTOR_SUM, a, b, c, n, n);
    for (unsigned int i = 0; i < n; i++)
        if (c[i] != a[i] + b[i])
            fail("number %u of the sum is %g; expected %g", i, (double)c[i], (double)(a[i] + b[i]));
    free(a), free(b), free(c);
}

static void check_product(void *module, unsigned int n)
{
    size_t numbers = (size_t)n * n;
    float *a = numbers_of(numbers, 2), *b = numbers_of(numbers, 3), *c = numbers_of(numbers, 0);
    compute(module, MATRIX_PRODUCT, a, b, c, n, numbers);
    for (unsigned int row = 0; row < n; row++)
        for (unsigned int col = 0; col < n; col++) {
            float sum = 0;
            for (unsigned int k = 0; k < n; k++)
                sum += a[row * n + k] * b[k * n + col];
            if (c[row * n + col] != sum)
                fail("number %u, %u of the product is %g; expected %g", row, col, (double)c[row * n + col], (double)sum);
        }
    free(a), free(b), free(c);
}

/* Seconds of one small call that must wait for its answer: four bytes from the GPU. */
static double time_call(unsigned long times)
{
    float number = 1;
    address_t at = on_gpu(&number, sizeof(number));
    double start = now();
    for (unsigned long i = 0; i < times; i++)
        TRY(cuMemcpyDtoH_v2, &number, at, sizeof(number));
    double seconds = (now() - start) / (double)times;
    bytes += times * sizeof(number);
    TRY(cuMemFree_v2, at);
    return seconds;
}

/* GB/s to the GPU and back, the better of three. */
static void time_copies(size_t mib, double speed[2])
{
    size_t count = mib * (1 << 20) / sizeof(float), size = count * sizeof(float);
    float *numbers = numbers_of(count, 4);
    /* Noise: a middleware that compresses shall gain nothing. */
    unsigned int noise = 2463534242u;
    for (size_t i = 0; i < count; i++) {
        noise ^= noise << 13, noise ^= noise >> 17, noise ^= noise << 5;
        memcpy(&numbers[i], &noise, sizeof(noise));
    }
    address_t at = on_gpu(numbers, size);
    speed[0] = speed[1] = 0;
    for (int i = 0; i < 3; i++) {
        double start = now();
        TRY(cuMemcpyHtoD_v2, at, numbers, size);
        TRY(cuCtxSynchronize);
        double middle = now();
        TRY(cuMemcpyDtoH_v2, numbers, at, size);
        double end = now(), there = (double)size / 1e9 / (middle - start), back = (double)size / 1e9 / (end - middle);
        speed[0] = there > speed[0] ? there : speed[0];
        speed[1] = back > speed[1] ? back : speed[1];
        bytes += 2 * size;
    }
    TRY(cuMemFree_v2, at);
    free(numbers);
}

static void use(int ordinal, unsigned int n, unsigned long times, size_t mib)
{
    int device = 0, version = 0;
    char name[96] = "";
    uuid_t uuid;
    void *context = NULL, *module = NULL;
    unsigned int side = n < 64 ? n : 64;
    calls = bytes = 0;
    TRY(cuDriverGetVersion, &version);
    TRY(cuDeviceGet, &device, ordinal);
    TRY(cuDeviceGetName, name, sizeof(name), device);
    TRY(cuDeviceGetUuid, &uuid, device);
    TRY(cuDevicePrimaryCtxRetain, &context, device);
    TRY(cuCtxSetCurrent, context);
    double start = now();
    TRY(cuModuleLoadData, &module, kernels);
    check_sum(module, n);
    check_product(module, side);
    double seconds = now() - start, speed[2] = {0, 0};
    double call_s = times ? time_call(times) : 0;
    if (mib)
        time_copies(mib, speed);
    TRY(cuModuleUnload, module);
    TRY(cuDevicePrimaryCtxRelease_v2, device);
    printf("{\"gpu\": %d, \"name\": \"%s\", \"uuid\": \"", ordinal, name);
    for (size_t i = 0; i < sizeof(uuid.bytes); i++)
        printf("%02x", uuid.bytes[i]);
    printf("\", \"driver\": %d, \"sum\": %u, \"product\": %u, \"calls\": %lu, \"bytes\": %lu, \"s\": %.6f, \"call_us\": %.3f, "
           "\"to_gb_s\": %.3f, \"from_gb_s\": %.3f}\n",
           version, n, side, calls, bytes, seconds, 1e6 * call_s, speed[0], speed[1]);
}

int main(int argc, char **argv)
{
    unsigned long numbers[] = {1000, 0, 0};
    for (int i = 1; i < argc; i++) {
        char *end;
        if (i > 3 || (numbers[i - 1] = strtoul(argv[i], &end, 10), *end || end == argv[i]) || numbers[i - 1] > 1 << 28)
            fail("usage: job [SIZE [CALLS [MIB]]]; read %s", argv[i]);
    }
    int found = 0;
    load();
    TRY(cuInit, 0);
    TRY(cuDeviceGetCount, &found);
    if (!found || !numbers[0])
        fail(found ? "SIZE: 0; expected 1 or more" : "no GPU");
    for (int ordinal = 0; ordinal < found; ordinal++)
        use(ordinal, (unsigned int)numbers[0], numbers[1], numbers[2]);
    return 0;
}
