/* What forward.c (in the job) and forward_server.c (on the donor) say to each other: a middleware for the calls of job.c alone, for tests
 * where no real one is installed. As most real ones it knows no passwords, and its server listens on every address unless it is told one. */
#ifndef GPUTOPO_TESTS_FORWARD_H
#define GPUTOPO_TESTS_FORWARD_H

#include "driver.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

#define NUMBER(name, parameters) CALL_##name,
enum { DRIVER_CALLS(NUMBER) CALLS };

enum { MOST_BYTES = 1 << 30 };

/* Followed by `bytes` of data. `a`: the call's numbers, addresses and handles in order; those it writes to are left out. */
struct request {
    uint32_t call, bytes;
    uint64_t a[8];
};

/* Followed by `bytes` of data. */
struct answer {
    int32_t result;
    uint32_t bytes;
    uint64_t value;
};

/* A launch's data: the parameters of both kernels. */
struct parameters {
    address_t a, b, c;
    unsigned int n;
};

static inline bool exchange(ssize_t (*pass)(int, void *, size_t), int fd, void *data, size_t size)
{
    for (char *at = data; size;) {
        ssize_t done = pass(fd, at, size);
        if (done <= 0 && errno != EINTR)
            return false;
        at += done > 0 ? done : 0;
        size -= done > 0 ? (size_t)done : 0;
    }
    return true;
}

static inline ssize_t write_to(int fd, void *data, size_t size)
{
    return write(fd, data, size);
}

static inline ssize_t read_from(int fd, void *data, size_t size)
{
    errno = 0;
    return read(fd, data, size);
}

static inline bool put(int fd, const void *data, size_t size)
{
    return exchange(write_to, fd, (void *)data, size);
}

static inline bool get(int fd, void *data, size_t size)
{
    return exchange(read_from, fd, data, size);
}

#endif
