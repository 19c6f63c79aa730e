/* The few calls of NVIDIA's driver library (libcuda.so.1) that a vector sum and a matrix product need: names, numbers and
 * parameters as in cuda.h, written anew, so that nothing of NVIDIA's is needed to compile. */
#ifndef GPUTOPO_TESTS_DRIVER_H
#define GPUTOPO_TESTS_DRIVER_H

#include <stddef.h>

enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500, LAUNCH_FAILED = 719, NOT_SUPPORTED = 801
};

typedef unsigned long long address_t; /* CUdeviceptr */
typedef struct {
    unsigned char bytes[16];
} uuid_t;

/* X(name, parameters): what job.c calls, in the order of its first use. */
#define DRIVER_CALLS(X)                                                                                                        \
    X(cuInit, (unsigned int flags))                                                                                            \
    X(cuDriverGetVersion, (int *version))                                                                                      \
    X(cuDeviceGetCount, (int *count))                                                                                          \
    X(cuDeviceGet, (int *device, int ordinal))                                                                                 \
    X(cuDeviceGetName, (char *name, int size, int device))                                                                     \
    X(cuDeviceGetUuid, (uuid_t * uuid, int device))                                                                            \
    X(cuDevicePrimaryCtxRetain, (void **context, int device))                                                                  \
    X(cuCtxSetCurrent, (void *context))                                                                                        \
    X(cuModuleLoadData, (void **module, const void *image))                                                                    \
    X(cuModuleGetFunction, (void **function, void *module, const char *name))                                                  \
    X(cuMemAlloc_v2, (address_t * address, size_t size))                                                                       \
    X(cuMemcpyHtoD_v2, (address_t to, const void *from, size_t size))                                                          \
    X(cuLaunchKernel, (void *function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,    \
                       unsigned int bz, unsigned int shared, void *stream, void **parameters, void **extra))                   \
    X(cuCtxSynchronize, (void))                                                                                                \
    X(cuMemcpyDtoH_v2, (void *to, address_t from, size_t size))                                                                \
    X(cuMemFree_v2, (address_t address))                                                                                       \
    X(cuModuleUnload, (void *module))                                                                                          \
    X(cuDevicePrimaryCtxRelease_v2, (int device))

/* Both kernels: float *a, *b, *c; unsigned int n. */
#define VECTOR_SUM "vector_sum"
#define MATRIX_PRODUCT "matrix_product"

#endif
