/* Starts and ends of jobs: notices to the engine, and notes in AdminComment. */
#pragma once

#include "compat.h"
#include "stats.h"

/*
 * The job's GPUs are chosen. The note goes into its AdminComment when Slurm begins
 * the job, which it may still decline.
 */
extern void gt_notice_chosen(const job_record_t *job, gt_result_t result,
			     const char *note);

/* Slurm tests another job, so the one chosen before did not begin. */
extern void gt_notice_forget(void);

extern void gt_notice_begin(job_record_t *job);
extern void gt_notice_started(const job_record_t *job);
extern void gt_notice_ended(const job_record_t *job);
