/*
 * Which GPUs a task has, in Slurm's indices and rank order, and what it must call them.
 * Pure: no Slurm header.
 */
#pragma once

#include "order.h"
#include "settings.h"

/* Which of the node's device files the task may open; by Slurm's index. */
typedef struct {
	bool is_known;		/* false: there are no such files here */
	bool is_restricted;	/* some may not be opened */
	bool has_minors;	/* `open` can be told apart */
	gt_list_t open;
} gt_access_t;

typedef struct {
	const char *visible;	/* Slurm's *_VISIBLE_DEVICES for this task */
	const char *step_gpus;	/* Slurm's indices by comma; "" when there are none */
	const char *tres_bind;	/* SLURMD_TRES_BIND; "" when there is none */
	bool is_cpu_bound;	/* Slurm has placed the tasks on CPUs one by one */
	int tasks, local_id;	/* tasks of the step on this node, and which one */
	gt_access_t access;
} gt_ask_t;

/*
 * RET true with *gpus, the task's in rank order, and visible[GT_TEXT], the list for
 * *_VISIBLE_DEVICES; or false when the task is to be left as it is, with one sentence in
 * note[GT_NOTE] that says why, empty when there is no GPU in the step.
 */
extern bool gt_devices(const gt_table_t *table, const gt_settings_t *settings,
		       const gt_ask_t *ask, gt_list_t *gpus, char *visible, char *note);
