/* forward-server PORT [ADDRESS]: makes the calls of forward.c on this node's driver library, for each connection in a process of its own. */
#include "forward.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define MEMBER(name, parameters) int(*name) parameters;
static struct {
    DRIVER_CALLS(MEMBER)
} driver;

static bool load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "forward-server: %s\n", dlerror());
        return false;
    }
#define LOOK_UP(name, parameters)                                                                                              \
    if (!(*(void **)&driver.name = dlsym(library, #name))) {                                                                   \
        fprintf(stderr, "forward-server: libcuda.so.1 has no %s\n", #name);                                                    \
        return false;                                                                                                          \
    }
    DRIVER_CALLS(LOOK_UP)
    return true;
}

static int launch(const uint64_t *a, const void *data, size_t bytes)
{
    struct parameters four;
    if (bytes != sizeof(four))
        return INVALID_VALUE;
    memcpy(&four, data, sizeof(four));
    void *parameters[] = {&four.a, &four.b, &four.c, &four.n};
    return driver.cuLaunchKernel((void *)a[0], (unsigned int)a[1], (unsigned int)a[2], (unsigned int)a[3], (unsigned int)a[4],
                                 (unsigned int)a[5], (unsigned int)a[6], (unsigned int)a[7], NULL, parameters, NULL);
}

/* One call. `data` has room for MOST_BYTES: what came with the call, and then what goes back. */
static int make(const struct request *request, char *data, struct answer *answer)
{
    const uint64_t *a = request->a;
    int number = 0, device = (int)a[0];
    void *handle = NULL;
    int result = SUCCESS;
    switch (request->call) {
    case CALL_cuInit: return driver.cuInit((unsigned int)a[0]);
    case CALL_cuDriverGetVersion: result = driver.cuDriverGetVersion(&number), answer->value = (uint64_t)number; return result;
    case CALL_cuDeviceGetCount: result = driver.cuDeviceGetCount(&number), answer->value = (uint64_t)number; return result;
    case CALL_cuDeviceGetName: answer->bytes = (uint32_t)a[1] & 0xfff; return driver.cuDeviceGetName(data, (int)answer->bytes, device);
    case CALL_cuDeviceGetUuid: answer->bytes = sizeof(uuid_t); return driver.cuDeviceGetUuid((uuid_t *)data, device);
    case CALL_cuDevicePrimaryCtxRetain: result = driver.cuDevicePrimaryCtxRetain(&handle, device); break;
    case CALL_cuDevicePrimaryCtxRelease_v2: return driver.cuDevicePrimaryCtxRelease_v2(device);
    case CALL_cuCtxSetCurrent: return driver.cuCtxSetCurrent((void *)a[0]);
    case CALL_cuCtxSynchronize: return driver.cuCtxSynchronize();
    case CALL_cuModuleLoadData: result = driver.cuModuleLoadData(&handle, data); break;
    case CALL_cuModuleGetFunction: result = driver.cuModuleGetFunction(&handle, (void *)a[0], data); break;
    case CALL_cuModuleUnload: return driver.cuModuleUnload((void *)a[0]);
    case CALL_cuMemAlloc_v2: return driver.cuMemAlloc_v2((address_t *)&answer->value, a[0]);
    case CALL_cuMemFree_v2: return driver.cuMemFree_v2(a[0]);
    case CALL_cuMemcpyHtoD_v2: return driver.cuMemcpyHtoD_v2(a[0], data, request->bytes);
    case CALL_cuMemcpyDtoH_v2:
        if (a[1] > MOST_BYTES)
            return INVALID_VALUE;
        answer->bytes = (uint32_t)a[1];
        return driver.cuMemcpyDtoH_v2(data, a[0], a[1]);
    case CALL_cuLaunchKernel: return launch(a, data, request->bytes);
    default: return NOT_SUPPORTED;
    }
    answer->value = (uint64_t)handle;
    return result;
}

static void serve(int fd)
{
    struct request request;
    /* Taken page by page as it is used; a zero ends every name and image. */
    char *data = calloc(MOST_BYTES + 1UL, 1);
    while (data && get(fd, &request, sizeof(request)) && request.bytes <= MOST_BYTES && get(fd, data, request.bytes)) {
        struct answer answer = {0};
        data[request.bytes] = 0;
        answer.result = make(&request, data, &answer);
        if (!put(fd, &answer, sizeof(answer)) || !put(fd, data, answer.bytes))
            break;
    }
    free(data);
}

int main(int argc, char **argv)
{
    int on = 1, port = argc == 2 || argc == 3 ? atoi(argv[1]) : 0, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    signal(SIGCHLD, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    if (port < 1 || port > 65535 || (argc == 3 && !inet_aton(argv[2], &any.sin_addr))) {
        fprintf(stderr, "usage: forward-server PORT [ADDRESS]\n");
        return 2;
    }
    if (!load())
        return 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, (struct sockaddr *)&any, sizeof(any)) || listen(fd, 16)) {
        perror("forward-server: listen");
        return 1;
    }
    for (;;) {
        int client = accept(fd, NULL, NULL);
        if (client < 0)
            continue;
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        if (!fork()) {
            close(fd);
            serve(client);
            _exit(0);
        }
        close(client);
    }
}
