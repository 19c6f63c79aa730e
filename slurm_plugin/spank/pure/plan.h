/* What shall be done for one task, computed before any of it is done. No Slurm header. */
#pragma once

#include <stdint.h>

#include "devices.h"

typedef struct {
	char visible[GT_TEXT];		/* for CUDA_ or ROCR_VISIBLE_DEVICES */
	char nics[GT_TEXT];		/* nearest NICs by comma, or "" */
	bool set_cpus;
	gt_cpuset_t cpus;
	gt_mem_t mem;			/* GT_MEM_NONE: leave the policy alone */
	uint64_t numa_nodes;		/* a bit for each NUMA node of the policy */
} gt_plan_t;

/* RET and note as of gt_devices() */
extern bool gt_plan(const gt_table_t *table, const gt_settings_t *settings,
		    const gt_task_t *task, gt_plan_t *plan, char *note);
