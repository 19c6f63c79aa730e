/*
 * What the kernel is asked and told: affinity, memory policy, device files, NICs. With
 * pretend= nothing is set. No Slurm header.
 */
#pragma once

#include <stdio.h>

#include "plan.h"

/* The CPUs the task may use now; RET false with errno. */
extern bool gt_kernel_cpus(const gt_settings_t *settings, gt_cpuset_t *cpus);

/* Which device files can be opened. */
extern void gt_kernel_access(const gt_table_t *table, const gt_settings_t *settings,
			     gt_access_t *access);

extern bool gt_kernel_has_nic(const char *name);
extern long gt_kernel_numa_memory_mb(int number);

/*
 * Sets affinity and memory policy; where one of them fails the other is still set. RET NULL, or
 * the call that failed, with errno.
 */
extern const char *gt_kernel_apply(const gt_settings_t *settings, const gt_plan_t *plan);

/* The same requests as text, one a line. */
extern void gt_kernel_record(FILE *record, const gt_plan_t *plan);
