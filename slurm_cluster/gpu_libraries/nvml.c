/* libnvidia-ml.so.1 for a node without NVIDIA's driver: the functions that Slurm's gpu/nvml (24.11: src/plugins/gpu/nvml/gpu_nvml.c)
 * and tests/slurm_cluster/nvml_reader.py call, answered from the data file of machine.h. Numbers, names and structures as in
 * NVIDIA's nvml.h. */
#include "machine.h"

#include <stdio.h>
#include <string.h>

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15
};
enum { IS_GPU = 1, IS_SWITCH = 2, TO_SAME_BOARD = 0 };

typedef struct {
    char legacy_bus[16];
    unsigned int domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} pci_t;

typedef struct {
    unsigned int multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, gpu_instance_slices, compute_instance_slices;
    unsigned long long memory_mb;
} attributes_t;

/* What callers hold: a GPU, or a slice of it. */
struct device {
    const gpu_t *gpu;
    const slice_t *slice;
};
typedef const struct device *device_t;

static struct device gpus[MOST_GPUS], slices[MOST_GPUS][MOST_SLICES];

static unsigned int index_of(device_t device)
{
    return (unsigned int)(device->gpu - machine()->gpu);
}

int nvmlInit_v2(void)
{
    return machine() ? SUCCESS : DRIVER_NOT_LOADED;
}

int nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    return nvmlInit_v2();
}

int nvmlShutdown(void)
{
    return SUCCESS;
}

const char *nvmlErrorString(int code)
{
    switch (code) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case GPU_IS_LOST: return "GPU is lost";
    default: return "Unknown Error";
    }
}

static int text(char *to, unsigned int size, const char *from)
{
    return fits(to, size, from) ? SUCCESS : INSUFFICIENT_SIZE;
}

int nvmlSystemGetDriverVersion(char *version, unsigned int size)
{
    return machine() ? text(version, size, machine()->driver) : UNINITIALIZED;
}

int nvmlSystemGetNVMLVersion(char *version, unsigned int size)
{
    return text(version, size, "12.535.161.08");
}

int nvmlDeviceGetCount_v2(unsigned int *count)
{
    if (!machine())
        return UNINITIALIZED;
    *count = machine()->gpus;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, device_t *device)
{
    if (!machine() || index >= machine()->gpus)
        return machine() ? INVALID_ARGUMENT : UNINITIALIZED;
    if (machine()->gpu[index].is_lost)
        return GPU_IS_LOST;
    gpus[index].gpu = &machine()->gpu[index];
    *device = &gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetName(device_t device, char *name, unsigned int size)
{
    return text(name, size, device->slice ? device->slice->name : device->gpu->name);
}

int nvmlDeviceGetUUID(device_t device, char *uuid, unsigned int size)
{
    return text(uuid, size, device->slice ? device->slice->uuid : device->gpu->uuid);
}

int nvmlDeviceGetMinorNumber(device_t device, unsigned int *minor)
{
    *minor = device->gpu->minor;
    return SUCCESS;
}

static int fill_pci(pci_t *pci, const char *bus)
{
    memset(pci, 0, sizeof(*pci));
    if (sscanf(bus, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device) != 3)
        return NOT_SUPPORTED;
    snprintf(pci->legacy_bus, sizeof(pci->legacy_bus), "%04X:%02X:%02X.0", pci->domain & 0xFFFF, pci->bus & 0xFF, pci->device & 0xFF);
    return text(pci->bus_id, sizeof(pci->bus_id), bus);
}

int nvmlDeviceGetPciInfo_v3(device_t device, pci_t *pci)
{
    return fill_pci(pci, device->gpu->bus);
}

static int cpus(device_t device, unsigned int words, unsigned long *mask)
{
    memset(mask, 0, words * sizeof(*mask));
    memcpy(mask, machine()->cpus[device->gpu->node], (words < MOST_WORDS ? words : MOST_WORDS) * sizeof(*mask));
    return SUCCESS;
}

int nvmlDeviceGetCpuAffinity(device_t device, unsigned int words, unsigned long *mask)
{
    return cpus(device, words, mask);
}

int nvmlDeviceGetMemoryAffinity(device_t device, unsigned int words, unsigned long *mask, unsigned int scope)
{
    (void)scope;
    memset(mask, 0, words * sizeof(*mask));
    mask[0] = 1UL << device->gpu->node;
    return SUCCESS;
}

int nvmlDeviceGetTopologyCommonAncestor(device_t a, device_t b, unsigned int *level)
{
    *level = a == b ? TO_SAME_BOARD : machine()->path[index_of(a)][index_of(b)];
    return SUCCESS;
}

/* -- NVLink: the lanes of the file are up, the others of a GPU down -- */

static const char *end_of(device_t device, unsigned int lane)
{
    return lane < device->gpu->links ? device->gpu->link[lane] : NULL;
}

static bool is_gpu(const char *bus)
{
    for (unsigned int i = 0; i < machine()->gpus; i++)
        if (!strcmp(machine()->gpu[i].bus, bus))
            return true;
    return false;
}

int nvmlDeviceGetNvLinkState(device_t device, unsigned int lane, unsigned int *state)
{
    if (lane >= MOST_LINKS)
        return INVALID_ARGUMENT;
    *state = end_of(device, lane) != NULL;
    return SUCCESS;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(device_t device, unsigned int lane, unsigned int *type)
{
    if (!end_of(device, lane))
        return NOT_SUPPORTED;
    *type = is_gpu(end_of(device, lane)) ? IS_GPU : IS_SWITCH;
    return SUCCESS;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(device_t device, unsigned int lane, pci_t *pci)
{
    return end_of(device, lane) ? fill_pci(pci, end_of(device, lane)) : NOT_SUPPORTED;
}

/* -- MIG -- */

int nvmlDeviceGetMigMode(device_t device, unsigned int *now, unsigned int *after)
{
    *now = *after = device->gpu->slices > 0;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(device_t device, unsigned int *count)
{
    *count = device->gpu->slices ? MOST_SLICES - 1 : 0;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(device_t device, unsigned int index, device_t *slice)
{
    if (index >= device->gpu->slices)
        return NOT_FOUND;
    struct device *found = &slices[index_of(device)][index];
    *found = (struct device){device->gpu, &device->gpu->slice[index]};
    *slice = found;
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(device_t slice, unsigned int *id)
{
    if (!slice->slice)
        return INVALID_ARGUMENT;
    *id = slice->slice->instance;
    return SUCCESS;
}

int nvmlDeviceGetComputeInstanceId(device_t slice, unsigned int *id)
{
    if (!slice->slice)
        return INVALID_ARGUMENT;
    *id = slice->slice->compute_instance;
    return SUCCESS;
}

int nvmlDeviceGetAttributes_v2(device_t slice, attributes_t *attributes)
{
    if (!slice->slice)
        return INVALID_ARGUMENT;
    *attributes = (attributes_t){.gpu_instance_slices = slice->slice->compute, .compute_instance_slices = slice->slice->compute,
                                 .memory_mb = slice->slice->memory_mb};
    return SUCCESS;
}

/* -- clocks and processes: one clock that nobody may change, and nobody computes -- */

static int one_clock(unsigned int *count, unsigned int *mhz)
{
    *count = 1;
    *mhz = 1215;
    return SUCCESS;
}

int nvmlDeviceGetSupportedMemoryClocks(device_t device, unsigned int *count, unsigned int *mhz)
{
    (void)device;
    return one_clock(count, mhz);
}

int nvmlDeviceGetSupportedGraphicsClocks(device_t device, unsigned int memory, unsigned int *count, unsigned int *mhz)
{
    (void)device, (void)memory;
    return one_clock(count, mhz);
}

int nvmlDeviceGetApplicationsClock(device_t device, int type, unsigned int *mhz)
{
    (void)device, (void)type, (void)mhz;
    return NOT_SUPPORTED;
}

int nvmlDeviceSetApplicationsClocks(device_t device, unsigned int memory, unsigned int graphics)
{
    (void)device, (void)memory, (void)graphics;
    return NOT_SUPPORTED;
}

int nvmlDeviceResetApplicationsClocks(device_t device)
{
    (void)device;
    return NOT_SUPPORTED;
}

int nvmlDeviceGetComputeRunningProcesses_v3(device_t device, unsigned int *count, void *processes)
{
    (void)device, (void)processes;
    *count = 0;
    return SUCCESS;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(device_t device, unsigned int *count, void *processes)
{
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, processes);
}

int nvmlDeviceGetProcessUtilization(device_t device, void *samples, unsigned int *count, unsigned long long since)
{
    (void)device, (void)samples, (void)since;
    *count = 0;
    return SUCCESS;
}
