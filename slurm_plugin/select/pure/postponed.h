/*
 * What is kept in memory of each job that was postponed: its note, its times, and which jobs
 * sleep now. Finding a job costs the same however many there are. No Slurm header.
 */
#pragma once

#include "admin_comment.h"
#include "protocol.h"
#include "wait_times.h"

typedef struct gt_postponed {
	struct gt_postponed *next;	/* in the table */
	uint32_t job_id;
	bool has_note;		/* `waiting` is what the job's note says */
	gt_waiting_t waiting;
	char why[GT_NOTE_MAX + 1];
	gt_wait_times_t times;
} gt_postponed_t;

/* RET what is kept of the job, or NULL */
extern gt_postponed_t *gt_postponed_find(uint32_t job_id);

/* RET the same, all 0 where nothing was kept; valid until it is dropped */
extern gt_postponed_t *gt_postponed_add(uint32_t job_id);

extern void gt_postponed_drop(uint32_t job_id);

/*
 * RET true where so many have come since the last call that returned true that it is time to
 * drop those of jobs that are gone: what that costs is no more than what they cost
 */
extern bool gt_postponed_sweep_due(void);

/* Drops those of jobs for which `is_gone` says so. */
extern void gt_postponed_sweep(bool (*is_gone)(uint32_t job_id));

extern void gt_postponed_free(void);

/* ------------------------------------------------------------- who sleeps now */

/* So many jobs sleep at a time, and so many of one user's: each end of a job looks at all */
#define GT_ASLEEP_MAX 200
#define GT_ASLEEP_OF_ONE (GT_ASLEEP_MAX / 4)

/* RET true if the job sleeps, or may: beyond the bounds nobody is postponed */
extern bool gt_asleep_has_room(uint32_t job_id, uint32_t user);

extern void gt_asleep_add(uint32_t job_id, uint32_t user);

/* Keeps those of which `stays` says so, which is called once for each. */
extern void gt_asleep_keep(bool (*stays)(uint32_t job_id, void *arg), void *arg);

extern void gt_asleep_clear(void);
