/*
 * Makes cons_tres itself choose the advised GPUs: while it selects, every other
 * free GPU of the advised nodes is shown to it as taken. Cores, memory, binding
 * and everything else stay its business. The caller holds slurmctld's job and
 * node write locks, so nobody else sees the masked state.
 */
#pragma once

#include "stock.h"

typedef struct {
	int index;		/* of the node in Slurm's node table */
	uint64_t gpus;
} gt_place_t;

/*
 * Runs the stock selection with only these nodes and GPUs in sight.
 * The mask is gone when this returns.
 * RET SLURM_SUCCESS if the job now has exactly the advised GPUs.
 */
extern int gt_mask_select(const gt_test_t *test, const gres_job_state_t *gpus,
			  const gt_place_t *places, int count);
