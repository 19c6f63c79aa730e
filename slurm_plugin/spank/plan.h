/* All that is to be done for one task, computed before anything is. Pure: no Slurm header. */
#pragma once

#include <stdint.h>

#include "cpuset.h"
#include "devices.h"

/* What the kernel and the user have said about a task besides its GPUs. */
typedef struct {
	gt_cpuset_t cpus;		/* those it may use now */
	bool has_cpu_bind, has_mem_bind;	/* --cpu-bind, --mem-bind */
	int cpus_per_task;		/* --cpus-per-task, 0 when not given */
	unsigned long memory_mb;	/* the job's on this node, 0 when not known */
	bool (*has_nic)(const char *name);	/* NULL: the table is trusted */
	long (*numa_memory_mb)(int number);	/* where the table does not say */
} gt_place_t;

typedef struct {
	char visible[GT_TEXT];		/* for CUDA_ or ROCR_VISIBLE_DEVICES */
	char nics[GT_TEXT];		/* nearest NICs by comma, or "" */
	bool set_cpus;
	gt_cpuset_t cpus;
	gt_mem_t mem;			/* GT_MEM_NONE: leave the policy alone */
	uint64_t numa_nodes;		/* mask the policy is for */
} gt_plan_t;

/* RET as gt_devices. */
extern bool gt_plan(const gt_table_t *table, const gt_settings_t *settings,
		    const gt_ask_t *ask, const gt_place_t *place, gt_plan_t *plan,
		    char *note);
