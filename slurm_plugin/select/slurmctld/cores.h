/* Cores that two jobs may have at once: gang scheduling and OverSubscribe. */
#pragma once

#include "compat.h"

/*
 * RET true if what the last selection gave the job has a core that another job has: one of
 * the two would be suspended in turn, or both be slowed down. Where Slurm never gives a core
 * to two jobs nothing is looked at
 */
extern bool gt_shares_cores(const job_record_t *job);
