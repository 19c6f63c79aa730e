/* librocm_smi64.so for a node without AMD's driver: the functions that Slurm's gpu/rsmi calls (24.11:
 * src/plugins/gpu/rsmi/gpu_rsmi.c), answered from the data file of machine.h. Numbers and structures as in AMD's rocm_smi.h. */
#include "machine.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGS = 1, NOT_SUPPORTED = 2, INIT_ERROR = 8, NOT_FOUND = 10, INSUFFICIENT_SIZE = 11 };
enum { FIRST_RENDER_NODE = 128 };

typedef struct {
    uint32_t major, minor, patch;
    const char *build;
} version_t;

static const gpu_t *gpu_of(uint32_t index)
{
    const machine_t *here = machine();
    return here && index < here->gpus && !here->gpu[index].is_lost ? &here->gpu[index] : NULL;
}

static int text(char *to, size_t size, const char *from)
{
    return fits(to, size, from) ? SUCCESS : INSUFFICIENT_SIZE;
}

int rsmi_init(uint64_t flags)
{
    (void)flags;
    return machine() ? SUCCESS : INIT_ERROR;
}

int rsmi_shut_down(void)
{
    return SUCCESS;
}

int rsmi_status_string(int status, const char **string)
{
    *string = status == SUCCESS ? "RSMI_STATUS_SUCCESS" : status == NOT_SUPPORTED ? "RSMI_STATUS_NOT_SUPPORTED" : "RSMI_STATUS_INVALID_ARGS";
    return SUCCESS;
}

int rsmi_version_get(version_t *version)
{
    *version = (version_t){7, 2, 0, "7.2.0"};
    return SUCCESS;
}

int rsmi_version_str_get(int component, char *version, uint32_t size)
{
    (void)component;
    return machine() ? text(version, size, machine()->driver) : INIT_ERROR;
}

int rsmi_num_monitor_devices(uint32_t *count)
{
    if (!machine())
        return INIT_ERROR;
    *count = machine()->gpus;
    return SUCCESS;
}

int rsmi_dev_name_get(uint32_t index, char *name, size_t size)
{
    return gpu_of(index) ? text(name, size, gpu_of(index)->name) : INVALID_ARGS;
}

/* ROCm's own answers with the name for every card since the MI200s. */
int rsmi_dev_brand_get(uint32_t index, char *brand, uint32_t size)
{
    return rsmi_dev_name_get(index, brand, size);
}

int rsmi_dev_drm_render_minor_get(uint32_t index, uint32_t *minor)
{
    if (!gpu_of(index))
        return INVALID_ARGS;
    *minor = FIRST_RENDER_NODE + gpu_of(index)->minor;
    return SUCCESS;
}

int rsmi_dev_pci_id_get(uint32_t index, uint64_t *address)
{
    unsigned int domain, bus, device;
    if (!gpu_of(index) || sscanf(gpu_of(index)->bus, "%x:%x:%x", &domain, &bus, &device) != 3)
        return INVALID_ARGS;
    *address = (uint64_t)domain << 32 | (uint64_t)bus << 8 | (uint64_t)device << 3;
    return SUCCESS;
}

int rsmi_dev_unique_id_get(uint32_t index, uint64_t *id)
{
    if (!gpu_of(index))
        return INVALID_ARGS;
    *id = strtoull(gpu_of(index)->uuid, NULL, 16);
    return SUCCESS;
}

int rsmi_topo_get_numa_node_number(uint32_t index, uint32_t *node)
{
    if (!gpu_of(index))
        return INVALID_ARGS;
    *node = gpu_of(index)->node;
    return SUCCESS;
}

/* -- clocks, power and processes -- */

int rsmi_dev_gpu_clk_freq_get(uint32_t index, int clock, void *frequencies)
{
    (void)index, (void)clock, (void)frequencies;
    return NOT_SUPPORTED;
}

int rsmi_dev_gpu_clk_freq_set(uint32_t index, int clock, uint64_t mask)
{
    (void)index, (void)clock, (void)mask;
    return NOT_SUPPORTED;
}

int rsmi_dev_perf_level_set(uint32_t index, int level)
{
    (void)index, (void)level;
    return NOT_SUPPORTED;
}

int rsmi_dev_power_ave_get(uint32_t index, uint32_t sensor, uint64_t *power)
{
    (void)index, (void)sensor, (void)power;
    return NOT_SUPPORTED;
}

int rsmi_compute_process_info_by_pid_get(uint32_t pid, void *process)
{
    (void)pid, (void)process;
    return NOT_FOUND;
}
