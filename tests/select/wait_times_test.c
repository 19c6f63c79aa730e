#include "wait_times.h"

#include "../claims.h"

#define HOUR_S 3600

CLAIM(the_site_s_bound_holds_within_our_own)
{
	CHECK(gt_wait_bound_s(600, HOUR_S) == 600);
	CHECK(gt_wait_bound_s(2 * HOUR_S, HOUR_S) == HOUR_S);
	CHECK(gt_wait_bound_s(0, HOUR_S) == HOUR_S);
	CHECK(gt_wait_left_s(600, 590, 60) == 10);
	CHECK(gt_wait_left_s(600, 100, 60) == 60);
}

CLAIM(a_clock_that_was_set_back_ends_the_wait)
{
	gt_wait_times_t asked_later = { .questions = 2, .asked = 5001, .end = 5010 };
	gt_wait_times_t ends_too_late = { .asked = 4990, .end = 5001 + HOUR_S };
	gt_wait_times_t good = { .asked = 5000, .end = 5000 + HOUR_S };

	gt_wait_check_clock(&asked_later, 5000, HOUR_S);
	CHECK(asked_later.asked == 0 && asked_later.end == 5000);
	CHECK(asked_later.questions == 2);
	gt_wait_check_clock(&ends_too_late, 5000, HOUR_S);
	CHECK(ends_too_late.asked == 0 && ends_too_late.end == 5000);
	gt_wait_check_clock(&good, 5000, HOUR_S);
	CHECK(good.asked == 5000 && good.end == 5000 + HOUR_S);
}

CLAIM(questions_of_one_second_are_one_and_grow_rarer)
{
	static const time_t apart_s[] = { 1, 1, 2, 4, 8, 16, 30, 30 };
	gt_wait_times_t times = { 0 };

	for (time_t now = 1; now <= 8; now++) {
		CHECK(gt_wait_apart_s(&times) == apart_s[now - 1]);
		gt_wait_count_question(&times, now);
		gt_wait_count_question(&times, now);
	}
	CHECK(times.questions == 8 && times.asked == 8);
}

CLAIM(a_wait_counts_once_however_often_it_is_cut_short)
{
	gt_wait_times_t times = { 0 };
	gt_waiting_t waiting = { 0 };

	CHECK(gt_wait_count(&times, &waiting, 1000, 60, 2));
	CHECK(waiting.count == 1 && times.end == 1060 && !times.questions);
	waiting.until = 1060;
	CHECK(gt_wait_count(&times, &waiting, 1059, 60, 2));
	CHECK(waiting.count == 1 && times.end == 1060 && times.questions == 1);
	CHECK(gt_wait_count(&times, &waiting, 1060, 60, 2));
	CHECK(waiting.count == 2 && times.end == 1120 && !times.questions);
	CHECK(!gt_wait_count(&times, &waiting, 1120, 60, 2));
	CHECK(waiting.count == 2);
}

CLAIM(a_job_sleeps_to_the_end_or_to_the_next_question)
{
	gt_wait_times_t times = { .questions = 3, .end = 1060 };

	CHECK(gt_wait_next_s(&times, 1000, 60, false) == 60);
	CHECK(gt_wait_next_s(&times, 1000, 60, true) == 4);
	CHECK(gt_wait_next_s(&times, 1050, 60, false) == 10);
	CHECK(gt_wait_next_s(&times, 1058, 60, true) == 2);
	CHECK(gt_wait_next_s(&times, 1000, 2, false) == 4);
}
