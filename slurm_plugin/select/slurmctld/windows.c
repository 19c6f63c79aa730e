#include "windows.h"

#include "layout.h"

#define LOOK_S 60	/* Slurm looks at a job whose begin time has come by then */
#define DAY_S 86400

typedef struct {
	const job_record_t *job;
	time_t now;
	int64_t least_s;
} window_t;

/* RET how long the job may run, as Slurm reckons where it looks for reservations on its way */
static int64_t limit_s(const job_record_t *job)
{
	uint32_t minutes = job->time_limit;

	if (minutes == NO_VAL)
		minutes = job->part_ptr->max_time;
	return minutes == INFINITE || minutes == NO_VAL ?
		365 * (int64_t) DAY_S : minutes * (int64_t) 60;
}

static bool wants_licenses(const job_record_t *job,
			   const slurmctld_resv_t *reservation)
{
	return job->license_list && reservation->license_list;
}

/* For list_for_each() */
static int until_reservation(void *item, void *arg)
{
	const slurmctld_resv_t *reservation = item;
	window_t *window = arg;
	const job_record_t *job = window->job;
	int64_t left_s;

	if (!gt_layout_reservation(reservation)) {
		window->least_s = 0;
		return -1;
	}
	/* its distance stays the same: what can start before it now can later */
	if (reservation->flags & RESERVE_FLAG_TIME_FLOAT)
		return 0;
	/* it began: whatever it takes is taken already */
	left_s = (int64_t) reservation->start_time - window->now;
	if (left_s <= 0 ||
	    (!wants_licenses(job, reservation) &&
	     !(reservation->node_bitmap &&
	       bit_overlap_any(reservation->node_bitmap,
			       job->job_resrcs->node_bitmap))))
		return 0;
	left_s -= limit_s(job);
	/* the job does not mind this one, else it could not start now */
	if (left_s >= 0)
		window->least_s = MIN(window->least_s, left_s);
	return 0;
}

static int64_t until_switched_off(const node_record_t *node, time_t now)
{
	if (!node->suspend_time || node->suspend_time >= NO_VAL ||
	    node->run_job_cnt || !node->last_busy)
		return INT64_MAX;
	return (int64_t) node->last_busy + node->suspend_time - now;
}

extern int64_t gt_window_s(const job_record_t *job, time_t now)
{
	window_t window = { job, now, INT64_MAX };
	node_record_t *node;

	if (job->resv_name || !job->part_ptr || !job->job_resrcs)
		return 0;
	if (&resv_list && resv_list)
		list_for_each(resv_list, until_reservation, &window);
	for (int i = 0; (node = next_node_bitmap(job->job_resrcs->node_bitmap, &i)); i++)
		window.least_s = MIN(window.least_s,
				     until_switched_off(node, now));
	return window.least_s == INT64_MAX ? window.least_s :
					     window.least_s - LOOK_S;
}
