/* Counters of what came of job tests, and the share of time that they may cost. No Slurm header. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* What came of a job test, and its name in the log. */
#define GT_RESULT_LIST(RESULT) \
	RESULT(USED, "used")             /* the advice, on whichever nodes */ \
	RESULT(ALT, "alt")               /* the advice within Slurm's own nodes */ \
	RESULT(PASS, "pass")             /* the engine left it to Slurm */ \
	RESULT(WAIT, "wait")             /* postponed */ \
	RESULT(CAPPED, "capped")         /* would wait again, but has waited enough */ \
	RESULT(INFEASIBLE, "infeasible") /* cons_tres refused the advised GPUs */ \
	RESULT(BAD_ADVICE, "bad_advice") /* busy GPUs, unknown nodes, wrong counts */ \
	RESULT(TIMEOUT, "timeout")       /* no answer within the deadline */ \
	RESULT(DOWN, "down")             /* no connection, or it closed */ \
	RESULT(GARBAGE, "garbage")       /* something that is not a reply */ \
	RESULT(BREAKER, "breaker")       /* not asked: a failure was too recent */ \
	RESULT(BUDGET_OUT, "budget_out") /* not asked: we have had our share of time */ \
	RESULT(NOT_OURS, "not_ours")     /* not asked: a kind of job we leave alone */

#define GT_RESULT_ENUM(constant, name) GT_##constant,

typedef enum {
	GT_RESULT_LIST(GT_RESULT_ENUM)
	GT_RESULTS,
	GT_ANSWERED = GT_RESULTS	/* no result yet: there is a reply */
} gt_result_t;

#define GT_SAMPLES 1024

typedef struct {
	uint64_t count[GT_RESULTS];
	uint64_t asked;
	uint64_t since_line;	/* results since the last line in the log */
	uint64_t out_before;	/* budget_out as it was in that line */
	int64_t line_us;	/* when that was */
	uint64_t samples;
	/* of the last questions, and the most of all */
	int32_t added_us[GT_SAMPLES];
	int32_t own_us[GT_SAMPLES];
	int32_t added_max_us, own_max_us;
} gt_stats_t;

typedef struct {
	int64_t at_us;		/* when it was last looked at; 0: never */
	int64_t spent_us;	/* lock time that we have added, less what time has given back */
} gt_budget_t;

extern const char *gt_result_name(gt_result_t result);
/* own_us: what is left of added_us without the engine's answer and Slurm's own selections */
extern void gt_stats_add(gt_stats_t *stats, gt_result_t result,
			 int64_t added_us, int64_t own_us);
/* RET true if a log line is due: after `every` results or interval_us, 0 for never */
extern int gt_stats_due(gt_stats_t *stats, uint32_t every, int64_t interval_us,
			int64_t now_us);
/*
 * RET how many were not asked about for want of time since the last line, if they are more
 * than a few in a hundred; else 0
 */
extern uint64_t gt_stats_out(const gt_stats_t *stats);
/* `asked=12 used=9 ... added_us_median=310 added_us_max=2100 own_us_median=40 own_us_max=90` */
extern void gt_stats_line(gt_stats_t *stats, int64_t now_us, char *text,
			  size_t size);

/*
 * RET what is left of limit_us. Time gives back limit_us in each window_us, so this is the
 * most that is spent at once, and limit_us of window_us the most in the long run.
 */
extern int64_t gt_budget_left(gt_budget_t *budget, int64_t now_us,
			      int64_t limit_us, int64_t window_us);
