#include "budget.h"

extern int64_t gt_budget_left(gt_budget_t *budget, uint64_t pass,
			      int64_t now_us, int64_t limit_us,
			      int64_t window_us)
{
	if (budget->pass != pass || !budget->started_us ||
	    now_us - budget->started_us >= window_us) {
		budget->pass = pass;
		budget->started_us = now_us;
		budget->spent_us = 0;
	}
	return limit_us - budget->spent_us;
}

extern void gt_budget_spend(gt_budget_t *budget, int64_t spent_us)
{
	budget->spent_us += spent_us;
}
