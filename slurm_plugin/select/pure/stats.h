/* Counters of what came of job tests, and the time that a pass may cost. No Slurm header. */
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
	RESULT(BUDGET_OUT, "budget_out") /* not asked: this pass has had its share */ \
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
	int64_t line_us;	/* when that was */
	uint64_t samples;
	/* of the last questions, and the most of all */
	int32_t added_us[GT_SAMPLES];
	int32_t own_us[GT_SAMPLES];
	int32_t added_max_us, own_max_us;
} gt_stats_t;

typedef struct {
	uint64_t pass;		/* changes from one scheduling pass to the next */
	int64_t started_us;
	int64_t spent_us;	/* lock time that we have added to this pass */
} gt_budget_t;

extern const char *gt_result_name(gt_result_t result);
/* own_us: what is left of added_us without the engine's answer and Slurm's own selections */
extern void gt_stats_add(gt_stats_t *stats, gt_result_t result,
			 int64_t added_us, int64_t own_us);
/* RET true if a log line is due: after `every` results or interval_us, 0 for never */
extern int gt_stats_due(gt_stats_t *stats, uint32_t every, int64_t interval_us,
			int64_t now_us);
/* `asked=12 used=9 ... added_us_median=310 added_us_max=2100 own_us_median=40 own_us_max=90` */
extern void gt_stats_line(gt_stats_t *stats, int64_t now_us, char *text,
			  size_t size);

/* RET what is left of limit_us for this pass; a new pass has all of it. */
extern int64_t gt_budget_left(gt_budget_t *budget, uint64_t pass,
			      int64_t now_us, int64_t limit_us,
			      int64_t window_us);
