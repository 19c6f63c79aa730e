/* Preloaded into slurmd of a container, whose host has other NUMA nodes than the machine, and no NVIDIA driver in /proc. */
#define _GNU_SOURCE
#include "machine.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* libnuma's struct bitmask. */
struct bitmask {
    unsigned long size; /* bits */
    unsigned long *maskp;
};

static const char minors[] = "/proc/driver/nvidia-caps/mig-minors";

FILE *fopen(const char *path, const char *mode)
{
    static FILE *(*real)(const char *, const char *);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "fopen");
    return real(strcmp(path, minors) ? path : "/etc/fakegpu/mig-minors", mode);
}

/* gpu/rsmi asks for the CPUs of a NUMA node. */
int numa_node_to_cpus(int node, struct bitmask *mask)
{
    unsigned long words = mask->size / (8 * sizeof(*mask->maskp));
    if (!machine() || node < 0 || node >= MOST_NODES)
        return -1;
    for (unsigned long word = 0; word < words; word++)
        mask->maskp[word] = word < MOST_WORDS ? machine()->cpus[node][word] : 0;
    return 0;
}
