/*
 * The option --gpu-topo=TEXT, and what one step on one node needs once: settings, hint,
 * table and the one log line.
 */
#pragma once

#include <slurm/spank.h>

#include "settings.h"
#include "table.h"

/* Where a job's own steps find the hint: set in sbatch, salloc and every task. */
#define GT_HINT_ENV "GPUTOPO_HINT"

/* RET ESPANK_SUCCESS, or Slurm's refusal when another plugin has the name */
extern int gt_option_register(spank_t spank);

/* Hands the option on to the job: in sbatch, salloc and srun, after they read it. */
extern void gt_option_carry(spank_t spank);

/* The hint given to this very command, or NULL. */
extern const char *gt_option_value(void);

typedef struct {
	gt_settings_t settings;
	gt_table_t table;
	int is_ready;		/* the table is there and the job has not opted out */
	int is_shell;		/* a batch script or salloc's shell: it holds the whole job */
	long prepare_us;	/* how long gt_step_prepare() took */
} gt_step_t;

extern gt_step_t gt_step;

/* Reads the arguments and the table. What fails is logged, and the step goes on. */
extern void gt_step_prepare(spank_t spank, int argc, char *argv[]);

/* Writes to slurmd's log; only the first call of all tasks of the step does. */
extern void gt_step_notice(const char *text);

/* Reads a variable of the job's environment; "" when unset or longer than the buffer. */
extern void gt_getenv(spank_t spank, const char *name, char *value, int size);

/* Reads the step's GPUs on this node, Slurm's indices by comma; "" where it has none. */
extern void gt_step_gpus(spank_t spank, char *gpus, int size);

extern long gt_now_us(void);

/* Sets a task's environment, CPUs and memory policy, just before it becomes the user's program. */
extern void gt_task_init(spank_t spank);
