/* A postponed job's sentence in its AdminComment. */
#ifndef GT_WAIT_NOTE_H
#define GT_WAIT_NOTE_H

#include "admin_comment.h"
#include "compat.h"

/* RET true if there is one; its reason points into the job's AdminComment */
extern bool gt_wait_note_read(const job_record_t *job, gt_waiting_t *waiting);

/* `why` NULL: the reason that was read before; `waiting` NULL: no sentence */
extern void gt_wait_note_write(job_record_t *job, const gt_waiting_t *waiting,
			       const char *why);

#endif
