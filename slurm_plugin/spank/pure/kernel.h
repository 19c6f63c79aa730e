/*
 * Calls to the kernel about affinity, memory policy, device files and NICs. With the
 * setting pretend= nothing is changed. No Slurm header.
 */
#pragma once

#include <stdio.h>

#include "plan.h"

/* Reads the CPUs that the task may use now. RET false with errno when that fails */
extern bool gt_kernel_cpus(const gt_settings_t *settings, gt_cpuset_t *cpus);

/* Finds out which GPUs' device files can be opened. */
extern void gt_kernel_access(const gt_table_t *table, const gt_settings_t *settings,
			     gt_access_t *access);

/* Reads the UUIDs from NVIDIA's driver; none where a file is not as expected. */
extern void gt_kernel_uuids(const gt_settings_t *settings, gt_uuids_t *uuids);

extern bool gt_kernel_has_nic(const char *name);
extern long gt_kernel_numa_memory_mb(int number);

/*
 * Sets affinity and memory policy, each even if the other fails.
 * RET NULL, or the name of the call that failed, with errno
 */
extern const char *gt_kernel_apply(const gt_settings_t *settings, const gt_plan_t *plan);

/* Writes the same two requests as text, one a line. */
extern void gt_kernel_record(FILE *record, const gt_plan_t *plan);
