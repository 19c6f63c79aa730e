/*
 * Counts GPU jobs that started although we were not called for them. The nodes'
 * counts of GPUs in use show that without reading a job's record, which may be
 * laid out otherwise than we think (layout.h).
 */
#pragma once

#include "compat.h"

/* Slurm begins this job: its resources are taken next. */
extern void gt_unasked_begin(const job_record_t *job);

/*
 * RET GPUs in use in the whole cluster, before this job's are taken; 0 if nobody
 * needs to know: we were called for this job, or have asked about others.
 */
extern uint64_t gt_unasked_gpus(const job_record_t *job);

/* The job's resources were taken; `before` is gt_unasked_gpus() from before that. */
extern void gt_unasked_started(const job_record_t *job, uint64_t before);
