/* One job test: what Slurm would do, what the engine advises, and obeying it. */
#pragma once

#include "stock.h"

extern int gt_advise_job_test(const gt_test_t *test);
