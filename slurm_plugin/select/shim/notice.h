/* What the engine and the job's AdminComment are told about starts and ends. */
#pragma once

#include "compat.h"
#include "stats.h"

/*
 * The job's GPUs are chosen. The note goes into its AdminComment once Slurm
 * begins the job; it may still refuse.
 */
extern void gt_notice_chosen(const job_record_t *job, gt_result_t result,
			     const char *note);

/* Slurm looks at another job: what was chosen before did not begin. */
extern void gt_notice_forget(void);

extern void gt_notice_begin(job_record_t *job);
extern void gt_notice_started(const job_record_t *job);
extern void gt_notice_ended(const job_record_t *job);
