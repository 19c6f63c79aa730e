/*
 * Are Slurm's records what this plugin was compiled for? Checked against the
 * running slurmctld's own nodes and jobs before anything is changed.
 */
#ifndef GT_LAYOUT_H
#define GT_LAYOUT_H

#include "compat.h"

/* The node table was rebuilt: check again at the next use. */
extern void gt_layout_forget(void);

/* RET true if the records are as expected; one log line if they are not */
extern bool gt_layout_known(void);

/* RET true if this job's record is as expected */
extern bool gt_layout_job(const job_record_t *job);

#endif
