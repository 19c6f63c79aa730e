/*
 * Which GPUs a task has, by Slurm's index and in rank order, and which numbers CUDA or ROCr
 * has for them. No Slurm header.
 */
#pragma once

#include "settings.h"
#include "table.h"

/*
 * Puts the GPUs of *set (all below table->gpus) in rank order.
 * RET false with *set unchanged when the table has no such pattern or the row is damaged
 */
extern bool gt_order(const gt_table_t *table, const char *pattern, gt_list_t *set);

/* Which of the node's device files the task may open */
typedef struct {
	bool is_known;		/* there are such files on this node */
	bool is_restricted;	/* some may not be opened */
	bool has_minors;	/* `open` says which they are, and not only how many */
	gt_list_t open;
} gt_access_t;

/* The UUIDs of the node's GPUs, by their number in CUDA: that is their order by PCI address */
typedef struct {
	int count;
	char uuid[GT_GPUS][GT_UUID];
} gt_uuids_t;

/* What Slurm, the user and the kernel have decided about one task. */
typedef struct {
	const char *visible;	/* Slurm's *_VISIBLE_DEVICES for this task */
	const gt_uuids_t *uuids;	/* NULL: not known */
	const char *step_gpus;	/* Slurm's indices by comma; "" when there are none */
	const char *tres_bind;	/* SLURMD_TRES_BIND; "" when there is none */
	int tasks;		/* of the step on this node */
	int local_id;		/* which of them this one is, from 0 */
	gt_access_t access;
	bool is_cpu_bound;	/* --cpu-bind, or Slurm placed the tasks on CPUs one by one */
	bool is_mem_bound;	/* --mem-bind */
	gt_cpuset_t cpus;	/* those it may use now */
	int cpus_per_task;	/* --cpus-per-task, 0 when not given */
	unsigned long memory_mb;	/* the job's on this node, 0 when not known */
	bool (*has_nic)(const char *name);	/* NULL: the table is trusted */
	long (*numa_memory_mb)(int number);	/* for NUMA nodes that the table does not know */
} gt_task_t;

/*
 * Finds *gpus, the task's in rank order, and visible[GT_TEXT], the list for
 * *_VISIBLE_DEVICES. RET false when the task is to be left as it is, with one sentence in
 * note[GT_NOTE] that says why; it is empty when the step has no GPUs
 */
extern bool gt_devices(const gt_table_t *table, const gt_settings_t *settings,
		       const gt_task_t *task, gt_list_t *gpus, char *visible, char *note);
