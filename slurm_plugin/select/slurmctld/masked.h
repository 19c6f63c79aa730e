/* A selection by cons_tres of exactly some GPUs. */
#pragma once

#include "gpus.h"

/*
 * Makes cons_tres itself choose these GPUs: while it selects, every other free GPU
 * of their nodes is marked as taken, and no other node is offered. Cores, memory,
 * binding and all else stay its business. The caller holds slurmctld's job and node
 * write locks, so nobody else sees the marks, which are gone when this returns.
 * RET SLURM_SUCCESS if the job now has exactly these GPUs, and no other job's cores
 */
extern int gt_mask_select(const gt_test_t *test, gres_job_state_t *gpus,
			  const gt_place_t *places, int count);
