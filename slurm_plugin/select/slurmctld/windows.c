#include "windows.h"

#include "layout.h"

#define DAY_S 86400
#define INTERVAL_S 30	/* bf_interval and bf_resolution where nothing is said */
#define RESOLUTION_S 60
#define SPARE_S 30
/* A node that is idle for so long after its time is not switched off: SuspendExcNodes, say */
#define LATE_S 120
#define PLANNED_MAX 200

typedef __typeof__(hostlist_create("")) gt_hostlist_t;

typedef struct {
	const job_record_t *job;
	time_t now;
	int64_t least_s;
} window_t;

/*
 * RET how long the job may run, as Slurm reckons where it looks for reservations on its way:
 * under gang scheduling as if all that may share its cores did
 */
static int64_t limit_s(const job_record_t *job)
{
	uint32_t minutes = job->time_limit;
	uint32_t slices = job->part_ptr->max_share & ~SHARED_FORCE;

	if (minutes == NO_VAL)
		minutes = job->part_ptr->max_time;
	if (minutes == INFINITE || minutes == NO_VAL)
		return 365 * (int64_t) DAY_S;
	if (!(slurm_conf.preempt_mode & PREEMPT_MODE_GANG) || slices < 1)
		slices = 1;
	return minutes * (int64_t) 60 * slices;
}

static int64_t parameter(const char *name, int64_t otherwise)
{
	const char *found = xstrcasestr(slurm_conf.sched_params, name);
	long value = found ? strtol(found + strlen(name), NULL, 10) : 0;

	return value > 0 ? value : otherwise;
}

/*
 * RET how long before the end of its window the job must be free to start: by then backfill
 * has surely looked at it, which rounds times to its resolution
 */
static int64_t look_s(void)
{
	int64_t interval_s = parameter("bf_interval=", INTERVAL_S);

	return interval_s + parameter("bf_max_time=", interval_s) +
	       parameter("bf_resolution=", RESOLUTION_S) + SPARE_S;
}

static bool wants_licenses(const job_record_t *job,
			   const slurmctld_resv_t *reservation)
{
	return job->license_list && reservation->license_list;
}

static bool wants_nodes(const job_record_t *job,
			const slurmctld_resv_t *reservation)
{
	/* --exclusive=topo: also one of other nodes of the same block */
	return reservation->node_bitmap &&
	       (GT_WHOLE_TOPOLOGY(job) ||
		bit_overlap_any(reservation->node_bitmap,
				job->job_resrcs->node_bitmap));
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
	    (!wants_licenses(job, reservation) && !wants_nodes(job, reservation)))
		return 0;
	/* Slurm takes it that the nodes must be booted for the job */
	left_s -= limit_s(job) + reservation->boot_time;
	/* the job does not mind this one, else it could not start now */
	if (left_s >= 0)
		window->least_s = MIN(window->least_s, left_s);
	return 0;
}

static int64_t until_switched_off(const node_record_t *node, time_t now)
{
	int64_t left_s;

	if (!slurm_conf.suspend_program || !slurm_conf.resume_program ||
	    !node->suspend_time || node->suspend_time >= NO_VAL ||
	    node->run_job_cnt || !node->last_busy)
		return INT64_MAX;
	left_s = (int64_t) node->last_busy + node->suspend_time - now;
	return left_s < -LATE_S ? INT64_MAX : left_s;
}

typedef struct {
	window_t window;
	int planned;		/* jobs that backfill has planned on any nodes */
} hole_t;

static bool is_planned_on(const job_record_t *planned, const job_record_t *job)
{
	gt_hostlist_t names = hostlist_create(planned->sched_nodes);
	node_record_t *node;
	bool found = false;

	for (int i = 0; names && !found &&
	     (node = next_node_bitmap(job->job_resrcs->node_bitmap, &i)); i++)
		found = hostlist_find(names, node->name) >= 0;
	if (names)
		hostlist_destroy(names);
	return found;
}

/* The job passes others that Slurm has planned on its nodes. For list_for_each() */
static int until_planned(void *item, void *arg)
{
	const job_record_t *planned = item;
	hole_t *hole = arg;
	window_t *window = &hole->window;
	int64_t left_s;

	if (planned == window->job || !planned->sched_nodes ||
	    !IS_JOB_PENDING(planned))
		return 0;
	if (++hole->planned > PLANNED_MAX) {
		window->least_s = 0;	/* too many to look at */
		return -1;
	}
	left_s = (int64_t) planned->start_time - window->now -
		 limit_s(window->job);
	/* less: it may start although that one is planned, so it is not in its way */
	if (left_s >= 0 && left_s < window->least_s &&
	    is_planned_on(planned, window->job))
		window->least_s = left_s;
	return 0;
}

extern int64_t gt_window_s(const job_record_t *job, time_t now)
{
	hole_t hole = { .window = { job, now, INT64_MAX } };
	window_t *window = &hole.window;
	node_record_t *node;

	/* with --time-min a job that starts later is cut shorter */
	if (job->resv_name || job->time_min || !job->part_ptr ||
	    !job->job_resrcs)
		return 0;
	if (&resv_list && resv_list)
		list_for_each(resv_list, until_reservation, window);
	if ((job->bit_flags & BACKFILL_SCHED) && &job_list && job_list)
		list_for_each(job_list, until_planned, &hole);
	for (int i = 0; (node = next_node_bitmap(job->job_resrcs->node_bitmap, &i)); i++)
		window->least_s = MIN(window->least_s,
				      until_switched_off(node, now));
	return window->least_s == INT64_MAX ? window->least_s :
					      window->least_s - look_s();
}
