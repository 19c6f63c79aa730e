#include "sleepers.h"

#include "alarm.h"
#include "begin_time.h"
#include "gpus.h"
#include "plugin.h"

/* A node is COMPLETING right after a job; later than this it is stuck. */
#define COMPLETING_S 60

typedef struct {
	uint32_t job_id;
	gt_wait_times_t times;
} sleeper_t;

static sleeper_t *sleepers;
static int sleeper_count;
static bool recovered;		/* sleepers was filled after a restart */
static time_t last_end;		/* when a GPU job last ended */

/* ---------------------------------------------------------------- the list */

extern bool gt_sleepers_is_waiting(const job_record_t *job,
				   gt_waiting_t *waiting)
{
	return job->details && IS_JOB_PENDING(job) && job->admin_comment &&
	       gt_wait_note_read(job, waiting) && waiting->until;
}

static void check_clock(sleeper_t *sleeper)
{
	gt_wait_check_clock(&sleeper->times, time(NULL),
			    gt_plugin.config.max_wait_s);
}

extern gt_wait_times_t *gt_sleepers_find(const job_record_t *job,
					 const gt_waiting_t *waiting)
{
	for (int i = 0; i < sleeper_count; i++)
		if (sleepers[i].job_id == job->job_id) {
			check_clock(&sleepers[i]);
			return &sleepers[i].times;
		}
	xrecalloc(sleepers, sleeper_count + 1, sizeof(*sleepers));
	sleepers[sleeper_count] = (sleeper_t) {
		.job_id = job->job_id,
		.times.end = waiting->until,
	};
	return &sleepers[sleeper_count++].times;
}

static int recover_job(void *item, void *arg)
{
	job_record_t *job = item;
	gt_waiting_t waiting;

	(void) arg;
	if (gt_sleepers_is_waiting(job, &waiting)) {
		gt_sleepers_find(job, &waiting);
		gt_alarm_set(waiting.until);
	}
	return 0;
}

extern void gt_sleepers_recover(void)
{
	if (!recovered && job_list)
		list_for_each(job_list, recover_job, NULL);
	recovered = true;
}

/* ------------------------------------------------------------------- nodes */

static int shares_nodes(void *partition, void *nodes)
{
	part_record_t *part = partition;

	return part && part->node_bitmap && bit_overlap_any(part->node_bitmap,
							    nodes);
}

/* Slurm tries a job in all of its partitions, one after the other. */
static bool may_use(const job_record_t *job, bitstr_t *nodes)
{
	if (job->part_ptr_list)
		return list_find_first(job->part_ptr_list, shares_nodes,
				       nodes) != NULL;
	return shares_nodes(job->part_ptr, nodes);
}

extern bool gt_sleepers_gpus_to_come(const job_record_t *job)
{
	return time(NULL) - last_end < COMPLETING_S && &cg_node_bitmap &&
	       cg_node_bitmap && may_use(job, cg_node_bitmap);
}

/* ------------------------------------------------------------------ waking */

static bool had_gpus(const job_record_t *job)
{
	return job->node_bitmap && job->gres_list_req && gt_job_gpus(job);
}

/* RET true if the engine may be asked about the job now */
static bool wake(job_record_t *job, gt_waiting_t *waiting,
		 const gt_wait_times_t *times)
{
	time_t next = times->asked + gt_wait_apart_s(times);

	if (next > last_end && gt_plugin_may_act()) {
		if (next < waiting->until) {
			gt_begin_time_set(job, waiting, next);
			gt_wait_note_write(job, waiting);
		}
		return false;
	}
	gt_begin_time_give_back(job, waiting);
	job->start_time = 0;
	return true;
}

extern void gt_sleepers_wake(const job_record_t *ended)
{
	bool woken = false;
	int kept = 0;

	if (!gt_plugin.active || !find_job_record || !had_gpus(ended))
		return;
	last_end = time(NULL);
	gt_sleepers_recover();
	for (int i = 0; i < sleeper_count; i++) {
		job_record_t *job = find_job_record(sleepers[i].job_id);
		gt_waiting_t waiting;

		if (!job || !gt_sleepers_is_waiting(job, &waiting))
			continue;	/* no longer waiting: forget it */
		check_clock(&sleepers[i]);
		sleepers[kept++] = sleepers[i];
		if (job->details->begin_time == waiting.until &&
		    may_use(job, ended->node_bitmap) &&
		    wake(job, &waiting, &sleepers[kept - 1].times))
			woken = true;
	}
	sleeper_count = kept;
	if (!woken)
		return;
	last_job_update = last_end;
	if (queue_job_scheduler)
		queue_job_scheduler();
}

extern void gt_sleepers_forget(void)
{
	sleeper_count = 0;
	recovered = false;
}

extern void gt_sleepers_stop(void)
{
	gt_alarm_stop();
	gt_sleepers_forget();
	xfree(sleepers);
}
