/* One job test: what Slurm would do, what the engine advises, and following that. */
#pragma once

#include "stock.h"

/* RET what Slurm's own plugin would, for the GPUs that were advised where that is possible */
extern int gt_advise_job_test(const gt_test_t *test);
