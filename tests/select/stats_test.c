#include "stats.h"

#include "../claims.h"

CLAIM(counters_tell_median_and_maximum)
{
	static gt_stats_t stats;
	char line[512];

	memset(&stats, 0, sizeof(stats));
	for (int i = 1; i <= 5; i++)
		gt_stats_add(&stats, GT_USED, i * 100, i * 10);
	gt_stats_add(&stats, GT_BREAKER, 1, 1);
	gt_stats_line(&stats, 0, line, sizeof(line));
	CHECK_TEXT(line, "asked=5 used=5 alt=0 pass=0 wait=0 capped=0 "
			 "infeasible=0 bad_advice=0 timeout=0 down=0 garbage=0 "
			 "breaker=1 budget_out=0 not_ours=0 "
			 "added_us_median=300 added_us_max=500 "
			 "own_us_median=30 own_us_max=50");
	for (int i = 0; i < 3000; i++)
		gt_stats_add(&stats, GT_PASS, 7, 3);
	gt_stats_line(&stats, 0, line, sizeof(line));
	CHECK(strstr(line, "added_us_median=7 added_us_max=500 "
			   "own_us_median=3 own_us_max=50"));
}

CLAIM(a_line_is_due_by_count_or_by_time)
{
	static gt_stats_t stats;

	memset(&stats, 0, sizeof(stats));
	CHECK(!gt_stats_due(&stats, 2, 1000, 50));
	gt_stats_add(&stats, GT_USED, 1, 1);
	CHECK(!gt_stats_due(&stats, 2, 1000, 100));
	CHECK(gt_stats_due(&stats, 2, 1000, 1100));
	CHECK(!gt_stats_due(&stats, 2, 0, 5000));
	gt_stats_add(&stats, GT_USED, 1, 1);
	CHECK(gt_stats_due(&stats, 2, 0, 100));
	CHECK(!gt_stats_due(&stats, 0, 0, 100));
}

CLAIM(a_pass_has_one_budget)
{
	gt_budget_t budget = { 0 };

	CHECK(gt_budget_left(&budget, 1, 1000, 500, 100000) == 500);
	budget.spent_us += 300;
	CHECK(gt_budget_left(&budget, 1, 2000, 500, 100000) == 200);
	budget.spent_us += 300;
	CHECK(gt_budget_left(&budget, 1, 3000, 500, 100000) == -100);
	CHECK(gt_budget_left(&budget, 2, 4000, 500, 100000) == 500);
	budget.spent_us += 600;
	CHECK(gt_budget_left(&budget, 2, 103999, 500, 100000) == -100);
	CHECK(gt_budget_left(&budget, 2, 104000, 500, 100000) == 500);
}
