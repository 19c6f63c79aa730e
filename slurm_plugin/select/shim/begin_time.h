/*
 * A postponed job has a begin time of ours. What is needed to take it back
 * stands in a sentence of its AdminComment.
 */
#pragma once

#include "admin_comment.h"
#include "compat.h"

/* The job's AdminComment with this note in our bracket; "": none */
extern void gt_note_write(job_record_t *job, const char *note);

/* RET true if there is such a sentence; its reason points into AdminComment */
extern bool gt_wait_note_read(const job_record_t *job, gt_waiting_t *waiting);

extern void gt_wait_note_write(job_record_t *job, const gt_waiting_t *waiting);

/* Slurm shall not start the job before `until`; wakes the scheduler then. */
extern void gt_begin_time_set(job_record_t *job, gt_waiting_t *waiting,
			      time_t until);

/* The job has the begin time again that it had before it waited. */
extern void gt_begin_time_give_back(job_record_t *job,
				    const gt_waiting_t *waiting);
