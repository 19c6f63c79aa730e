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

CLAIM(many_that_were_not_asked_about_are_told_of)
{
	static gt_stats_t stats;
	char line[512];

	memset(&stats, 0, sizeof(stats));
	for (int i = 0; i < 97; i++)
		gt_stats_add(&stats, GT_USED, 100, 10);
	for (int i = 0; i < 3; i++)
		gt_stats_add(&stats, GT_BUDGET_OUT, 1, 1);
	CHECK(gt_stats_out(&stats) == 0);
	gt_stats_add(&stats, GT_BUDGET_OUT, 1, 1);
	CHECK(gt_stats_out(&stats) == 4);
	gt_stats_line(&stats, 0, line, sizeof(line));
	CHECK(gt_stats_out(&stats) == 0);
}

CLAIM(time_gives_the_budget_back)
{
	gt_budget_t budget = { 0 };
	int64_t now = 1000;

	/* 500 of every 5000 */
	CHECK(gt_budget_left(&budget, now, 500, 5000) == 500);
	budget.spent_us += 300;
	CHECK(gt_budget_left(&budget, now += 1000, 500, 5000) == 300);
	budget.spent_us += 400;
	CHECK(gt_budget_left(&budget, now, 500, 5000) == -100);
	CHECK(gt_budget_left(&budget, now += 1000, 500, 5000) == 0);
	CHECK(gt_budget_left(&budget, now += 4000, 500, 5000) == 400);
	/* who spends nothing for long has no more than that at once */
	CHECK(gt_budget_left(&budget, now += 1000000, 500, 5000) == 500);
}

CLAIM(in_the_long_run_no_more_is_spent_than_the_share)
{
	gt_budget_t budget = { 0 };
	int64_t spent = 0, now = 1000;

	for (; now <= 1001000; now += 7)
		if (gt_budget_left(&budget, now, 500, 5000) >= 50) {
			budget.spent_us += 45;
			spent += 45;
		}
	CHECK(spent > 99000 && spent <= 100500);
}
