/* --gpu-topo=TEXT of sbatch, salloc and srun, and how it reaches the tasks. */
#pragma once

#include <slurm/spank.h>

/* Where a job's own steps find the hint: set in sbatch, salloc and every task. */
#define GT_HINT_ENV "GPUTOPO_HINT"

/* RET ESPANK_SUCCESS, or Slurm's refusal (another plugin has the name). */
extern int gt_option_register(spank_t spank);

/* In sbatch, salloc and srun, after the command line was read. */
extern void gt_option_carry(spank_t spank);

/* The hint given to this very command, or NULL. */
extern const char *gt_option_value(void);
