/*
 * What happens to a job once its GPUs are chosen: it begins, and its note says why these;
 * it starts and ends, and the engine is told.
 */
#pragma once

#include "compat.h"
#include "stats.h"

/*
 * The job's GPUs are chosen. The note goes into its AdminComment when Slurm begins
 * the job, which it may still decline.
 */
extern void gt_job_chosen(const job_record_t *job, gt_result_t result,
			  const char *note);

/* Slurm tests another job, so the one chosen before did not begin. */
extern void gt_job_forget_chosen(void);

extern void gt_job_begins(job_record_t *job);
extern void gt_job_started(const job_record_t *job);
extern void gt_job_ended(const job_record_t *job);
