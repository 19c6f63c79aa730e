/* libcuda.so.1 for a machine without an NVIDIA GPU: the calls of job.c and those that a middleware's server makes for them. Memory
 * is the process's own, and a launch of the two kernels of kernels.h is computed on the spot. Its GPUs are the numbers in
 * CUDA_VISIBLE_DEVICES (without it, 0 alone); name and UUID tell the host and the number. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_GPUS 16
#define CALL __attribute__((visibility("default")))
#define DECLARE(name, parameters) CALL int name parameters;
DRIVER_CALLS(DECLARE)

enum { PARAMETERS = 4 };

/* What a handle points to: contexts, modules and functions have nothing but their kind. */
static char contexts[MOST_GPUS], modules, functions[2];
static const char *const names[] = {VECTOR_SUM, MATRIX_PRODUCT};
static __thread void *current;
static int gpus[MOST_GPUS], count = -1;

static int is_device(int device)
{
    return device >= 0 && device < count;
}

CALL int cuInit(unsigned int flags)
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    char *end;
    if (flags)
        return INVALID_VALUE;
    count = 0;
    for (text = text ? text : "0"; count < MOST_GPUS; text = end + 1) {
        long number = strtol(text, &end, 10);
        if (end == text)
            break;
        gpus[count++] = (int)number;
        if (*end != ',')
            break;
    }
    return count ? SUCCESS : NO_DEVICE;
}

CALL int cuDriverGetVersion(int *version)
{
    *version = 12000;
    return SUCCESS;
}

CALL int cuDeviceGetCount(int *found)
{
    *found = count;
    return count < 0 ? NOT_INITIALIZED : SUCCESS;
}

CALL int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return is_device(ordinal) ? SUCCESS : INVALID_DEVICE;
}

CALL int cuDeviceGetName(char *name, int size, int device)
{
    char host[64] = "";
    if (!is_device(device))
        return INVALID_DEVICE;
    gethostname(host, sizeof(host) - 1);
    snprintf(name, (size_t)size, "stand-in %d of %s", gpus[device], host);
    return SUCCESS;
}

CALL int cuDeviceGetUuid(uuid_t *uuid, int device)
{
    char host[64] = "";
    if (!is_device(device))
        return INVALID_DEVICE;
    gethostname(host, sizeof(host) - 1);
    memset(uuid, 0, sizeof(*uuid));
    memcpy(uuid->bytes, host, strnlen(host, sizeof(uuid->bytes) - 1));
    uuid->bytes[15] = (unsigned char)gpus[device];
    return SUCCESS;
}

CALL int cuDeviceGetUuid_v2(uuid_t *uuid, int device)
{
    return cuDeviceGetUuid(uuid, device);
}

CALL int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    *bytes = (size_t)16 << 30;
    return is_device(device) ? SUCCESS : INVALID_DEVICE;
}

/* Of 1 what is asked for as a yes or a number; the compute capability is 7.5. */
CALL int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    enum { MAJOR = 75, MINOR = 76 };
    *value = attribute == MAJOR ? 7 : attribute == MINOR ? 5 : 0;
    return is_device(device) ? SUCCESS : INVALID_DEVICE;
}

CALL int cuDevicePrimaryCtxRetain(void **context, int device)
{
    if (!is_device(device))
        return INVALID_DEVICE;
    *context = &contexts[device];
    return SUCCESS;
}

CALL int cuDevicePrimaryCtxRelease_v2(int device)
{
    return is_device(device) ? SUCCESS : INVALID_DEVICE;
}

CALL int cuDevicePrimaryCtxGetState(int device, unsigned int *flags, int *active)
{
    *flags = 0;
    *active = is_device(device) && current == &contexts[device];
    return SUCCESS;
}

CALL int cuCtxSetCurrent(void *context)
{
    current = context;
    return SUCCESS;
}

CALL int cuCtxGetCurrent(void **context)
{
    *context = current;
    return SUCCESS;
}

CALL int cuCtxPushCurrent_v2(void *context)
{
    return cuCtxSetCurrent(context);
}

CALL int cuCtxPopCurrent_v2(void **context)
{
    return cuCtxGetCurrent(context);
}

CALL int cuCtxGetDevice(int *device)
{
    if (!current)
        return INVALID_CONTEXT;
    *device = (int)((char *)current - contexts);
    return SUCCESS;
}

CALL int cuCtxSynchronize(void)
{
    return current ? SUCCESS : INVALID_CONTEXT;
}

CALL int cuStreamSynchronize(void *stream)
{
    (void)stream;
    return cuCtxSynchronize();
}

CALL int cuModuleLoadData(void **module, const void *image)
{
    if (!current)
        return INVALID_CONTEXT;
    if (!image || !strstr(image, ".entry " VECTOR_SUM "("))
        return INVALID_IMAGE;
    *module = &modules;
    return SUCCESS;
}

CALL int cuModuleLoadDataEx(void **module, const void *image, unsigned int options, int *keys, void **values)
{
    (void)options, (void)keys, (void)values;
    return cuModuleLoadData(module, image);
}

CALL int cuModuleUnload(void *module)
{
    return module == &modules ? SUCCESS : INVALID_HANDLE;
}

CALL int cuModuleGetFunction(void **function, void *module, const char *name)
{
    if (module != &modules)
        return INVALID_HANDLE;
    for (size_t i = 0; i < sizeof(functions); i++)
        if (!strcmp(name, names[i])) {
            *function = &functions[i];
            return SUCCESS;
        }
    return NOT_FOUND;
}

CALL int cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *size)
{
    (void)function;
    if (index >= PARAMETERS)
        return INVALID_VALUE;
    *offset = 8 * index;
    if (size)
        *size = index + 1 < PARAMETERS ? sizeof(address_t) : sizeof(unsigned int);
    return SUCCESS;
}

CALL int cuMemAlloc_v2(address_t *address, size_t size)
{
    void *memory = current && size ? malloc(size) : NULL;
    *address = (address_t)memory;
    return memory ? SUCCESS : !current ? INVALID_CONTEXT : size ? OUT_OF_MEMORY : INVALID_VALUE;
}

CALL int cuMemFree_v2(address_t address)
{
    free((void *)address);
    return SUCCESS;
}

CALL int cuMemHostAlloc(void **memory, size_t size, unsigned int flags)
{
    (void)flags;
    *memory = malloc(size);
    return *memory ? SUCCESS : OUT_OF_MEMORY;
}

CALL int cuMemAllocHost_v2(void **memory, size_t size)
{
    return cuMemHostAlloc(memory, size, 0);
}

CALL int cuMemHostGetFlags(unsigned int *flags, void *memory)
{
    *flags = 0;
    return memory ? SUCCESS : INVALID_VALUE;
}

CALL int cuMemFreeHost(void *memory)
{
    free(memory);
    return SUCCESS;
}

CALL int cuMemcpyHtoD_v2(address_t to, const void *from, size_t size)
{
    memcpy((void *)to, from, size);
    return SUCCESS;
}

CALL int cuMemcpyDtoH_v2(void *to, address_t from, size_t size)
{
    memcpy(to, (const void *)from, size);
    return SUCCESS;
}

CALL int cuMemcpyHtoDAsync_v2(address_t to, const void *from, size_t size, void *stream)
{
    (void)stream;
    return cuMemcpyHtoD_v2(to, from, size);
}

CALL int cuMemcpyDtoHAsync_v2(void *to, address_t from, size_t size, void *stream)
{
    (void)stream;
    return cuMemcpyDtoH_v2(to, from, size);
}

/* All is done before a call returns, so an event has always happened. */
CALL int cuEventCreate(void **event, unsigned int flags)
{
    (void)flags;
    *event = &modules;
    return SUCCESS;
}

#define HAPPENED(name)                                                                                                         \
    CALL int name(void *event)                                                                                                 \
    {                                                                                                                          \
        return event == &modules ? SUCCESS : INVALID_HANDLE;                                                                   \
    }
HAPPENED(cuEventQuery)
HAPPENED(cuEventSynchronize)
HAPPENED(cuEventDestroy_v2)

CALL int cuEventRecord(void *event, void *stream)
{
    (void)stream;
    return cuEventQuery(event);
}

static void multiply(const float *a, const float *b, float *c, unsigned int n)
{
    for (unsigned int row = 0; row < n; row++)
        for (unsigned int col = 0; col < n; col++) {
            float sum = 0;
            for (unsigned int k = 0; k < n; k++)
                sum += a[row * n + k] * b[k * n + col];
            c[row * n + col] = sum;
        }
}

CALL int cuLaunchKernel(void *function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,
                        unsigned int bz, unsigned int shared, void *stream, void **parameters, void **extra)
{
    (void)shared, (void)stream, (void)extra;
    if (!current || !parameters)
        return current ? INVALID_VALUE : INVALID_CONTEXT;
    const float *a = *(const float **)parameters[0], *b = *(const float **)parameters[1];
    float *c = *(float **)parameters[2];
    unsigned int n = *(unsigned int *)parameters[3];
    /* As on a GPU, what no thread is for is not computed. */
    if ((unsigned long long)gx * bx < n || gz != 1 || bz != 1)
        return LAUNCH_FAILED;
    if (function == &functions[0])
        for (unsigned int i = 0; i < n; i++)
            c[i] = a[i] + b[i];
    else if (function == &functions[1] && (unsigned long long)gy * by >= n)
        multiply(a, b, c, n);
    else
        return function == &functions[1] ? LAUNCH_FAILED : INVALID_HANDLE;
    return SUCCESS;
}

CALL int cuGetErrorName(int error, const char **text)
{
    static char name[32];
    snprintf(name, sizeof(name), "error %d of the stand-in", error);
    *text = name;
    return SUCCESS;
}

CALL int cuGetErrorString(int error, const char **text)
{
    return cuGetErrorName(error, text);
}
