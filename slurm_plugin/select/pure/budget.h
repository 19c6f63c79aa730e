/*
 * How much lock time this scheduling pass has already been made longer by us.
 * Pure: the caller says what a pass is and what time it is.
 */
#pragma once

#include <stdint.h>

typedef struct {
	uint64_t pass;		/* changes from one scheduling pass to the next */
	int64_t started_us;
	int64_t spent_us;
} gt_budget_t;

/* RET what is left of limit_us for this pass; a new pass has all of it. */
extern int64_t gt_budget_left(gt_budget_t *budget, uint64_t pass,
			      int64_t now_us, int64_t limit_us,
			      int64_t window_us);

extern void gt_budget_spend(gt_budget_t *budget, int64_t spent_us);
