/* Until when a job that could start now still could: what closes its nodes meanwhile. */
#pragma once

#include "compat.h"

/*
 * How many seconds the job may wait so that the nodes chosen for it can still be had:
 * until a reservation is too near for its time limit, or power saving switches a node off.
 * A minute is kept back for Slurm's own look at the queue; 0 or less: it may not wait.
 * A job inside a reservation never waits, because that may end
 */
extern int64_t gt_window_s(const job_record_t *job, time_t now);
