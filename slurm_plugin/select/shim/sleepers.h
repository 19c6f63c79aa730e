/*
 * Jobs that wait: the begin time of each, the alarm when that time has come, and
 * waking them when GPUs come free. All that is kept here may be lost with slurmctld:
 * the jobs' AdminComment holds what is needed to go on (note.h), and without it a job
 * sleeps until its begin time and is asked about anew.
 */
#pragma once

#include "admin_comment.h"
#include "compat.h"
#include "wait_times.h"

/* Slurm shall not start the job before `until`, and try again then. */
extern void gt_sleep_until(job_record_t *job, gt_waiting_t *waiting,
			   time_t until);

/* Gives the job the begin time back that it had before it waited. */
extern void gt_begin_time_give_back(job_record_t *job,
				    const gt_waiting_t *waiting);

/* RET true if the job is pending and was postponed, even if it was woken since */
extern bool gt_sleepers_is_waiting(const job_record_t *job,
				   gt_waiting_t *waiting);

/* RET the job's times, new ones for a new job; valid until it waits no more */
extern gt_wait_times_t *gt_sleepers_find(const job_record_t *job,
					 const gt_waiting_t *waiting);

/*
 * RET true if the job may sleep beside those that do; false where there are as many as are
 * looked at when a job ends, or as many of its user as one may have
 */
extern bool gt_sleepers_may_join(const job_record_t *job);

/* Finds the jobs that waited when slurmctld ended; only the first call does. */
extern void gt_sleepers_recover(void);

/* RET true if a job just ended on nodes that Slurm does not offer yet */
extern bool gt_sleepers_gpus_to_come(const job_record_t *job);

/* An ended job's GPUs come free: jobs that wait for its nodes try again. */
extern void gt_sleepers_wake(const job_record_t *ended);

extern void gt_sleepers_forget(void);	/* the next call looks for them anew */
extern void gt_sleepers_stop(void);
