/*
 * How long a postponed job waits, and when the engine is asked about it again.
 * Times are seconds since the epoch; the caller says what time it is.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "admin_comment.h"

typedef struct {
	uint32_t questions;	/* about the job, within this wait */
	time_t asked;		/* when the last question was */
	time_t end;		/* when this wait has run its course */
	uint32_t max_wait_s;	/* the bound in the last reply, or 0 */
} gt_wait_times_t;

/* RET the longest the job may wait in all: the site's bound (0: none) within our own */
extern uint32_t gt_wait_bound_s(uint32_t site_s, uint32_t safety_s);

/* RET how much of wanted_s is left of the bound; waited_s must be below it */
extern time_t gt_wait_left_s(uint32_t bound_s, uint64_t waited_s,
			     time_t wanted_s);

/* Ends the wait if its times are too far ahead, because the clock was set back. */
extern void gt_wait_check_clock(gt_wait_times_t *times, time_t now,
				uint32_t safety_s);

/* RET how long after a question the next one may be */
extern time_t gt_wait_apart_s(const gt_wait_times_t *times);

/* Counts a question. Those of one second count once: a job may have several partitions. */
extern void gt_wait_count_question(gt_wait_times_t *times, time_t now);

/*
 * Counts a wait of so many seconds, unless the job goes on with one that was cut short.
 * RET false if the job has waited max_postponements times already
 */
extern bool gt_wait_count(gt_wait_times_t *times, gt_waiting_t *waiting,
			  time_t now, time_t seconds,
			  uint32_t max_postponements);

/*
 * RET for how long to sleep now: to the end of the wait, or until the next
 * question where GPUs are about to come free (is_soon)
 */
extern time_t gt_wait_next_s(const gt_wait_times_t *times, time_t now,
			     time_t wanted_s, bool is_soon);
