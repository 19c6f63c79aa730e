/*
 * What we say of a job: in our bracket of its AdminComment, where others may
 * overwrite it, and for a job that waits in our own memory as well. An engine that
 * keeps the notes itself (its reply says quiet=1) has nothing written there.
 */
#pragma once

#include "admin_comment.h"
#include "compat.h"

/*
 * The job's hint: in our bracket of its AdminComment, in its Comment, or given by
 * --gpu-topo, which outlives whoever overwrites these.
 */
extern gt_slice_t gt_job_hint(const job_record_t *job);

/*
 * Puts the note into our bracket of the job's AdminComment; "" takes it out. The job waits
 * no more: it starts, or the waits were those of another task.
 */
extern void gt_note_write(job_record_t *job, const char *note);

/* Takes our bracket out of the job's AdminComment. */
extern void gt_note_remove(job_record_t *job);

/*
 * RET true if the job has waited, by our memory or else by its note; the reason points
 * into either
 */
extern bool gt_note_read_waiting(const job_record_t *job, gt_waiting_t *waiting);

extern void gt_note_write_waiting(job_record_t *job, const gt_waiting_t *waiting);
