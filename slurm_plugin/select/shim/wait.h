/*
 * Postponing a job.
 *
 * A postponed job gets a begin time of ours; what is needed to take it back
 * stands in its AdminComment, so nothing is lost when slurmctld restarts and the
 * tasks of an array that can start together share one count.
 */
#pragma once

#include "admin_comment.h"
#include "compat.h"
#include "protocol.h"

typedef struct {
	gt_waiting_t waiting;	/* all 0: never postponed */
	uint32_t postponed;	/* what the engine is told */
	uint64_t waited_s;
	bool overridden;	/* somebody else set its begin time meanwhile */
	bool asleep;		/* its begin time lies ahead, yet Slurm tries it */
} gt_postponement_t;

/*
 * Takes our begin time off a job that Slurm would start now, asked about or not,
 * and tells what it has waited so far.
 */
extern void gt_wait_settle(job_record_t *job, gt_postponement_t *earlier);

/*
 * cons_tres cannot start the job in this partition. If it was postponed in
 * another of its partitions a moment ago, it goes on sleeping.
 */
extern void gt_wait_sleep_on(job_record_t *job,
			     const gt_postponement_t *earlier);

/*
 * Postpones the job by at most what the reply says.
 * RET false if it has waited enough and must start now.
 */
extern bool gt_wait_postpone(job_record_t *job,
			     const gt_postponement_t *earlier,
			     const gt_reply_t *reply);

/*
 * There was no time to ask about the job.
 * RET true if it waited before and goes on until the next look at it.
 */
extern bool gt_wait_go_on(job_record_t *job, const gt_postponement_t *earlier);

/* A task of an array begins: the others keep the count of its waits. */
extern void gt_wait_begun(const job_record_t *task);
