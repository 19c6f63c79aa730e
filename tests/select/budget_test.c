#include "budget.h"

#include "../claims.h"

CLAIM(a_pass_has_one_budget)
{
	gt_budget_t budget = { 0 };

	CHECK(gt_budget_left(&budget, 1, 1000, 500, 100000) == 500);
	gt_budget_spend(&budget, 300);
	CHECK(gt_budget_left(&budget, 1, 2000, 500, 100000) == 200);
	gt_budget_spend(&budget, 300);
	CHECK(gt_budget_left(&budget, 1, 3000, 500, 100000) == -100);
	CHECK(gt_budget_left(&budget, 2, 4000, 500, 100000) == 500);
	gt_budget_spend(&budget, 600);
	CHECK(gt_budget_left(&budget, 2, 103999, 500, 100000) == -100);
	CHECK(gt_budget_left(&budget, 2, 104000, 500, 100000) == 500);
}
