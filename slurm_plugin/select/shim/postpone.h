/*
 * Postponing a job: it gets a begin time of ours, and a note in its AdminComment says
 * how to take that back. So nothing is lost when slurmctld restarts, and the tasks of
 * an array that can start together share one count of waits.
 */
#pragma once

#include "admin_comment.h"
#include "compat.h"
#include "protocol.h"

typedef struct {
	gt_waiting_t waiting;	/* all 0: never postponed */
	uint64_t waited_s;	/* since its first wait */
	bool overridden;	/* somebody else set its begin time meanwhile */
	bool asleep;		/* its begin time lies ahead, yet Slurm tries it */
} gt_earlier_t;

/*
 * Takes our begin time off a job that Slurm would start now, even if the engine is
 * not asked about it. *earlier says how long the job has waited.
 */
extern void gt_postpone_settle(job_record_t *job, gt_earlier_t *earlier);

/*
 * cons_tres cannot start the job in this partition. If the job was postponed in another
 * of its partitions a moment ago, it goes on waiting.
 */
extern void gt_postpone_sleep_on(job_record_t *job,
				 const gt_earlier_t *earlier);

/*
 * Postpones the job by at most what the reply says.
 * RET false if it has waited enough and must start now.
 */
extern bool gt_postpone(job_record_t *job, const gt_earlier_t *earlier,
			const gt_reply_t *reply);

/*
 * This pass had no time left to ask about the job.
 * RET true if the job waited before and goes on waiting
 */
extern bool gt_postpone_go_on(job_record_t *job, const gt_earlier_t *earlier);

/* A task of an array begins: the other tasks keep its count of waits. */
extern void gt_postpone_begun(const job_record_t *task);
