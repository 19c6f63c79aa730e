/* Until when a job that could start now still could: what closes its nodes meanwhile. */
#pragma once

#include "compat.h"

/*
 * How many seconds the job may wait so that the nodes chosen for it can still be had:
 * until a reservation is too near for its time limit, or the start of a job that backfill
 * has planned there, or power saving switches a node off. As long as Slurm's own look at the
 * queue may take is kept back; 0 or less: it may not wait. A job inside a reservation never
 * waits, because that may end, nor one with --time-min
 */
extern int64_t gt_window_s(const job_record_t *job, time_t now);
