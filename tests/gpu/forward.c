/* libcuda.so.1 of a job that uses lent GPUs alone: every call goes to one of the servers in FORWARD_SERVERS=host:port,host:port. */
#include "forward.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALL __attribute__((visibility("default")))
#define DECLARE(name, parameters) CALL int name parameters;
DRIVER_CALLS(DECLARE)

enum { MOST_SERVERS = 16, LOST = 999 };

static struct server {
    int fd, gpus;
    void *contexts[16];
} servers[MOST_SERVERS], *current;
static int count;

static int ask(struct server *to, int call, const uint64_t *a, size_t n, const void *data, size_t bytes, void *back, size_t room,
               uint64_t *value)
{
    struct request request = {.call = (uint32_t)call, .bytes = (uint32_t)bytes};
    struct answer answer;
    if (!to)
        return INVALID_CONTEXT;
    if (bytes > MOST_BYTES || room > MOST_BYTES)
        return INVALID_VALUE;
    for (size_t i = 0; i < n; i++)
        request.a[i] = a[i];
    if (!put(to->fd, &request, sizeof(request)) || !put(to->fd, data, bytes) || !get(to->fd, &answer, sizeof(answer)) ||
        answer.bytes > room || !get(to->fd, back, answer.bytes))
        return LOST;
    if (value)
        *value = answer.value;
    return answer.result;
}

#define A(...) ((const uint64_t[]){__VA_ARGS__}), sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)
#define NONE NULL, 0

static int reach(const char *host, const char *port)
{
    struct addrinfo want = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    int on = 1, fd;
    if (getaddrinfo(host, port, &want, &found))
        return -1;
    fd = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen)) {
        close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    if (fd >= 0)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

CALL int cuInit(unsigned int flags)
{
    char text[1024], *rest = text;
    snprintf(text, sizeof(text), "%s", getenv("FORWARD_SERVERS") ? getenv("FORWARD_SERVERS") : "");
    for (char *word; count < MOST_SERVERS && (word = strtok_r(rest, ",", &rest));) {
        struct server *server = &servers[count];
        char *colon = strrchr(word, ':');
        uint64_t gpus = 0;
        if (!colon)
            return INVALID_VALUE;
        *colon = 0;
        if ((server->fd = reach(word, colon + 1)) < 0)
            return LOST;
        int result = ask(server, CALL_cuInit, A(flags), NONE, NONE, NULL);
        if (!result)
            result = ask(server, CALL_cuDeviceGetCount, NONE, NONE, NONE, &gpus);
        if (result)
            return result;
        server->gpus = (int)gpus;
        count++;
    }
    return count ? SUCCESS : NO_DEVICE;
}

/* The server of the device with this number among all; `device` becomes the server's own number. */
static struct server *of(int *device)
{
    for (struct server *server = servers; server < &servers[count] && *device >= 0; server++) {
        if (*device < server->gpus)
            return server;
        *device -= server->gpus;
    }
    return NULL;
}

CALL int cuDriverGetVersion(int *version)
{
    uint64_t value = 0;
    int result = ask(servers, CALL_cuDriverGetVersion, NONE, NONE, NONE, &value);
    *version = (int)value;
    return result;
}

CALL int cuDeviceGetCount(int *found)
{
    *found = 0;
    for (int i = 0; i < count; i++)
        *found += servers[i].gpus;
    return SUCCESS;
}

CALL int cuDeviceGet(int *device, int ordinal)
{
    int there = ordinal;
    *device = ordinal;
    return of(&there) ? SUCCESS : INVALID_DEVICE;
}

CALL int cuDeviceGetName(char *name, int size, int device)
{
    struct server *server = of(&device);
    return ask(server, CALL_cuDeviceGetName, A((uint64_t)device, (uint64_t)size), NONE, name, (size_t)size, NULL);
}

CALL int cuDeviceGetUuid(uuid_t *uuid, int device)
{
    struct server *server = of(&device);
    return ask(server, CALL_cuDeviceGetUuid, A((uint64_t)device), NONE, uuid, sizeof(*uuid), NULL);
}

CALL int cuDevicePrimaryCtxRetain(void **context, int device)
{
    struct server *server = of(&device);
    uint64_t value = 0;
    if (!server || device >= 16)
        return INVALID_DEVICE;
    int result = ask(server, CALL_cuDevicePrimaryCtxRetain, A((uint64_t)device), NONE, NONE, &value);
    server->contexts[device] = (void *)value;
    *context = &server->contexts[device];
    return result;
}

CALL int cuDevicePrimaryCtxRelease_v2(int device)
{
    struct server *server = of(&device);
    return ask(server, CALL_cuDevicePrimaryCtxRelease_v2, A((uint64_t)device), NONE, NONE, NULL);
}

CALL int cuCtxSetCurrent(void *context)
{
    size_t at = (size_t)((char *)context - (char *)servers) / sizeof(servers[0]);
    if (at >= (size_t)count)
        return INVALID_CONTEXT;
    current = &servers[at];
    return ask(current, CALL_cuCtxSetCurrent, A((uint64_t)*(void **)context), NONE, NONE, NULL);
}

CALL int cuCtxSynchronize(void)
{
    return ask(current, CALL_cuCtxSynchronize, NONE, NONE, NONE, NULL);
}

CALL int cuModuleLoadData(void **module, const void *image)
{
    return ask(current, CALL_cuModuleLoadData, NONE, image, strlen(image) + 1, NONE, (uint64_t *)module);
}

CALL int cuModuleGetFunction(void **function, void *module, const char *name)
{
    return ask(current, CALL_cuModuleGetFunction, A((uint64_t)module), name, strlen(name) + 1, NONE, (uint64_t *)function);
}

CALL int cuModuleUnload(void *module)
{
    return ask(current, CALL_cuModuleUnload, A((uint64_t)module), NONE, NONE, NULL);
}

CALL int cuMemAlloc_v2(address_t *address, size_t size)
{
    return ask(current, CALL_cuMemAlloc_v2, A(size), NONE, NONE, (uint64_t *)address);
}

CALL int cuMemFree_v2(address_t address)
{
    return ask(current, CALL_cuMemFree_v2, A(address), NONE, NONE, NULL);
}

CALL int cuMemcpyHtoD_v2(address_t to, const void *from, size_t size)
{
    return ask(current, CALL_cuMemcpyHtoD_v2, A(to), from, size, NONE, NULL);
}

CALL int cuMemcpyDtoH_v2(void *to, address_t from, size_t size)
{
    return ask(current, CALL_cuMemcpyDtoH_v2, A(from, size), NONE, to, size, NULL);
}

CALL int cuLaunchKernel(void *function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,
                        unsigned int bz, unsigned int shared, void *stream, void **parameters, void **extra)
{
    struct parameters four = {*(address_t *)parameters[0], *(address_t *)parameters[1], *(address_t *)parameters[2],
                              *(unsigned int *)parameters[3]};
    if (stream || extra)
        return NOT_SUPPORTED;
    return ask(current, CALL_cuLaunchKernel, A((uint64_t)function, gx, gy, gz, bx, by, bz, shared), &four, sizeof(four), NONE, NULL);
}
