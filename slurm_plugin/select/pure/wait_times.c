#include "wait_times.h"

/* A waiting job costs no more questions than Slurm's own backfill, every 30 s. */
#define APART_MAX_S 30

extern uint32_t gt_wait_bound_s(uint32_t site_s, uint32_t safety_s)
{
	return site_s && site_s < safety_s ? site_s : safety_s;
}

extern time_t gt_wait_left_s(uint32_t bound_s, uint64_t waited_s,
			     time_t wanted_s)
{
	time_t left_s = (time_t) (bound_s - waited_s);

	return wanted_s < left_s ? wanted_s : left_s;
}

extern void gt_wait_check_clock(gt_wait_times_t *times, time_t now,
				uint32_t safety_s)
{
	if (times->asked > now || times->end - now > (time_t) safety_s) {
		times->asked = 0;
		times->end = now;
	}
}

/*
 * A job waits for GPUs that come free, so it is asked about at once when some do.
 * But where jobs end all the time, a question at every end would be a selection
 * in every pass for every job that waits.
 */
extern time_t gt_wait_apart_s(const gt_wait_times_t *times)
{
	if (!times->questions)
		return 1;
	return times->questions > 5 ? APART_MAX_S : 1 << (times->questions - 1);
}

extern void gt_wait_count_question(gt_wait_times_t *times, time_t now)
{
	if (now != times->asked)
		times->questions++;
	times->asked = now;
}

extern bool gt_wait_count(gt_wait_times_t *times, gt_waiting_t *waiting,
			  time_t now, time_t seconds,
			  uint32_t max_postponements)
{
	if (waiting->until && now < times->end) {
		gt_wait_count_question(times, now);
		return true;
	}
	if (waiting->count >= max_postponements)
		return false;
	waiting->count++;
	times->questions = 0;
	times->asked = now;
	times->end = now + seconds;
	return true;
}

extern time_t gt_wait_next_s(const gt_wait_times_t *times, time_t now,
			     time_t wanted_s, bool is_soon)
{
	time_t next_s = gt_wait_apart_s(times), left_s = times->end - now;

	if (!is_soon && next_s < wanted_s)
		next_s = wanted_s;
	return next_s < left_s ? next_s : left_s;
}
