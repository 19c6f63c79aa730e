/* Which jobs are asked about at all; every other one is Slurm's alone. */
#pragma once

#include "stock.h"

/* Before the stock selection. RET the job's GPU request, or NULL: not ours. */
extern gres_job_state_t *gt_request_gpus(const gt_test_t *test);

/*
 * After it succeeded. RET true if the engine may be asked to choose other GPUs:
 * no preemption, whole node, reserved or mixed GPUs.
 */
extern bool gt_request_is_open(const gt_test_t *test,
			       const gres_job_state_t *gpus);

/*
 * RET true if the GPUs of node `index` are the job's to choose from: one by one,
 * and none of the node's GRES is reserved for others
 */
extern bool gt_request_may_use(const gt_test_t *test, int index);

/* RET true if only the nodes that Slurm chose may be used */
extern bool gt_request_keeps_nodes(const gt_test_t *test);
