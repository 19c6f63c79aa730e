#include "postponed.h"

#include "../claims.h"

#define MANY 5000

static uint32_t odd_one(uint32_t i)
{
	return i * 64 + 1;	/* close together in the table */
}

CLAIM(what_is_kept_of_a_job_is_found_however_many_there_are)
{
	for (uint32_t i = 0; i < MANY; i++) {
		gt_postponed_t *wait = gt_postponed_add(odd_one(i));

		CHECK(wait->job_id == odd_one(i) && !wait->has_note);
		wait->waiting.count = i;
	}
	CHECK(gt_postponed_find(odd_one(3)) == gt_postponed_add(odd_one(3)));
	for (uint32_t i = 0; i < MANY; i += 3)
		gt_postponed_drop(odd_one(i));
	for (uint32_t i = 0; i < MANY; i++) {
		gt_postponed_t *wait = gt_postponed_find(odd_one(i));

		CHECK(i % 3 ? wait && wait->waiting.count == i : !wait);
	}
	CHECK(!gt_postponed_find(2));
	gt_postponed_free();
	CHECK(!gt_postponed_find(odd_one(1)));
	gt_postponed_drop(odd_one(1));
}

static bool is_even(uint32_t job_id)
{
	return job_id % 2 == 0;
}

CLAIM(jobs_that_are_gone_are_swept_no_oftener_than_jobs_come)
{
	int sweeps = 0;

	for (uint32_t id = 1; id <= MANY; id++) {
		gt_postponed_add(id);
		if (!gt_postponed_sweep_due())
			continue;
		sweeps++;
		gt_postponed_sweep(is_even);
		CHECK(!gt_postponed_find(id - id % 2));
		CHECK(gt_postponed_find(id - 1 + id % 2));
	}
	CHECK(sweeps > 3 && sweeps < 12);	/* ever more lie between two */
	gt_postponed_free();
}

static bool below(uint32_t job_id, void *arg)
{
	return job_id < *(uint32_t *) arg;
}

CLAIM(so_many_jobs_sleep_at_a_time_and_a_quarter_of_them_is_one_user_s)
{
	uint32_t id = 1, limit = 11;

	for (uint32_t user = 0; user < 4; user++) {
		for (int i = 0; i < GT_ASLEEP_OF_ONE; i++) {
			CHECK(gt_asleep_has_room(id, user));
			gt_asleep_add(id, user);
			gt_asleep_add(id++, user);
		}
		CHECK(!gt_asleep_has_room(id, user));
	}
	CHECK(!gt_asleep_has_room(id, 4));
	gt_asleep_add(id, 4);
	CHECK(gt_asleep_has_room(1, 0));	/* it sleeps already */
	CHECK(!gt_asleep_has_room(id, 4));
	gt_asleep_keep(below, &limit);
	CHECK(gt_asleep_has_room(id, 4) && gt_asleep_has_room(10, 0));
	gt_asleep_clear();
}
