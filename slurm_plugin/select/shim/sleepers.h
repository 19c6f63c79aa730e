/*
 * The jobs that wait, and waking them when GPUs come free. All of it may be lost
 * with slurmctld: it is found again in the jobs' AdminComment.
 */
#pragma once

#include "compat.h"
#include "wait_times.h"

/* RET true if the job is pending and has been postponed; maybe woken since */
extern bool gt_sleepers_is_waiting(const job_record_t *job,
				   gt_waiting_t *waiting);

/* RET the job's times, good until the next call; new ones for a new job */
extern gt_wait_times_t *gt_sleepers_find(const job_record_t *job,
					 const gt_waiting_t *waiting);

/* Finds the jobs that waited when slurmctld ended; once. */
extern void gt_sleepers_recover(void);

/* RET true if a job just ended on nodes that Slurm does not offer yet */
extern bool gt_sleepers_gpus_to_come(const job_record_t *job);

/* GPUs of an ended job come free: jobs that wait for its nodes try again. */
extern void gt_sleepers_wake(const job_record_t *ended);

extern void gt_sleepers_forget(void);	/* look for waiting jobs anew */
extern void gt_sleepers_stop(void);
