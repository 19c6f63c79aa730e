/* What one step on one node needs once: settings, hint, table, and the one log line. */
#pragma once

#include <slurm/spank.h>

#include "settings.h"
#include "table.h"

typedef struct {
	gt_settings_t settings;
	gt_table_t table;
	int is_ready;		/* the table is there and the job has not opted out */
	int is_shell;		/* a batch script or salloc's shell: it holds the whole job */
	long prepare_us;	/* what reading it took */
} gt_step_t;

extern gt_step_t gt_step;

/* Reads the arguments and the table; all trouble is logged, none is returned. */
extern void gt_step_prepare(spank_t spank, int argc, char *argv[]);

/* One line in slurmd's log for the whole step, whichever task meets trouble first. */
extern void gt_step_notice(const char *text);

/* A variable of the job's environment; "" when unset or longer than the buffer. */
extern void gt_getenv(spank_t spank, const char *name, char *value, int size);

/* The step's GPUs on this node by Slurm's index, as Slurm set them; "" where it has none. */
extern void gt_step_gpus(spank_t spank, char *gpus, int size);

extern long gt_now_us(void);

/* Sets a task's environment, CPUs and memory policy, just before it becomes the user's program. */
extern void gt_task_init(spank_t spank);
