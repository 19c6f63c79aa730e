/*
 * GPU jobs that start without having come by us, counted by the nodes' books:
 * these do not depend on a job's record, which may be misread (layout.h).
 */
#ifndef GT_UNASKED_H
#define GT_UNASKED_H

#include "compat.h"

/* Slurm begins this job: its resources are taken next. */
extern void gt_unasked_begin(const job_record_t *job);

/*
 * RET GPUs in use in the whole cluster, before this job's are taken; 0 if that
 * does not matter: it came by us, or others have and were asked about.
 */
extern uint64_t gt_unasked_gpus(const job_record_t *job);

/* The job's resources were taken; `before` is gt_unasked_gpus() from before that. */
extern void gt_unasked_started(const job_record_t *job, uint64_t before);

#endif
