/*
 * A job's record as it was before Slurm's selection: where we select once more, or leave the
 * job pending, Slurm is to find it as if there had been none.
 */
#pragma once

#include "compat.h"

typedef struct {
	job_record_t job;
	__typeof__(*((job_record_t *) NULL)->details) details;
} gt_before_t;

extern void gt_before_keep(gt_before_t *before, const job_record_t *job);

extern void gt_before_put_back(const gt_before_t *before, job_record_t *job);

/*
 * After a selection: RET true if Slurm changed nothing in the record but what
 * gt_before_put_back() puts back or leaves on purpose. The first time it did, the log says so
 */
extern bool gt_before_check(const gt_before_t *before, const job_record_t *job);
