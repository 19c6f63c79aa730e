#define _GNU_SOURCE
#include "sleepers.h"

#include <pthread.h>

#include "gpus.h"
#include "note.h"
#include "plugin.h"
#include "protocol.h"
#include "postponed.h"

#define ALARMS 64
/* A node is COMPLETING right after a job; one that is so for longer is stuck. */
#define COMPLETING_S 60

/* ------------------------------------------------------------------ alarms */

/*
 * Slurm looks at begin times only once a minute or so. A thread asks for a scheduling
 * pass at each of these times.
 */
static time_t alarms[ALARMS];	/* 0: unused */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_t thread;
static bool running, stopping;

/* Clears the alarms that are due. RET the first of the others, 0: none */
static time_t next_alarm(time_t now, bool *due)
{
	time_t first = 0;

	*due = false;
	for (int i = 0; i < ALARMS; i++) {
		if (alarms[i] && alarms[i] <= now) {
			alarms[i] = 0;
			*due = true;
		} else if (alarms[i] && (!first || alarms[i] < first)) {
			first = alarms[i];
		}
	}
	return first;
}

static void *watch(void *arg)
{
	(void) arg;
	pthread_mutex_lock(&lock);
	while (!stopping) {
		bool due;
		struct timespec until = {
			.tv_sec = next_alarm(time(NULL), &due),
		};

		if (due) {
			pthread_mutex_unlock(&lock);
			queue_job_scheduler();
			pthread_mutex_lock(&lock);
		} else if (until.tv_sec) {
			pthread_cond_timedwait(&changed, &lock, &until);
		} else {
			pthread_cond_wait(&changed, &lock);
		}
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

static void add_alarm(time_t when)
{
	int last = 0;

	for (int i = 0; i < ALARMS; i++) {
		if (alarms[i] == when)
			return;
		if (!alarms[i]) {
			alarms[i] = when;
			return;
		}
		if (alarms[i] > alarms[last])
			last = i;
	}
	/* all taken: the latest one goes, as Slurm looks every minute anyway */
	if (when < alarms[last])
		alarms[last] = when;
}

static void set_alarm(time_t when)
{
	if (!queue_job_scheduler)
		return;
	pthread_mutex_lock(&lock);
	add_alarm(when);
	if (!running)
		running = !pthread_create(&thread, NULL, watch, NULL);
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
}

static void stop_alarms(void)
{
	bool join;

	pthread_mutex_lock(&lock);
	join = running;
	running = false;
	stopping = true;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
	if (join)
		pthread_join(thread, NULL);
	stopping = false;
	memset(alarms, 0, sizeof(alarms));
}

/* ------------------------------------------------------------- begin times */

extern void gt_sleep_until(job_record_t *job, gt_waiting_t *waiting,
			   time_t until)
{
	waiting->until = until;
	job->details->begin_time = until;
	job->start_time = until;	/* backfill plans no earlier start */
	last_job_update = time(NULL);
	set_alarm(until);
	gt_note_write_waiting(job, waiting);
	gt_asleep_add(job->job_id, job->user_id);
}

extern void gt_begin_time_give_back(job_record_t *job,
				    const gt_waiting_t *waiting)
{
	job->details->begin_time = waiting->begin;
	/* Slurm starts a job's age at the begin time if the age has no start yet */
	if (job->details->accrue_time == waiting->until)
		job->details->accrue_time = waiting->begin;
}

/* ---------------------------------------------------------------- the list */

static bool recovered;		/* those that slept before a restart were found */
static time_t last_end;		/* when a GPU job last ended */

extern bool gt_sleepers_is_waiting(const job_record_t *job,
				   gt_waiting_t *waiting)
{
	return job->details && IS_JOB_PENDING(job) &&
	       gt_note_read_waiting(job, waiting) && waiting->until;
}

extern gt_wait_times_t *gt_sleepers_find(const job_record_t *job,
					 const gt_waiting_t *waiting)
{
	bool is_new = !gt_postponed_find(job->job_id);
	gt_postponed_t *wait = gt_postponed_add(job->job_id);

	if (is_new)
		wait->times.end = waiting->until;
	gt_wait_check_clock(&wait->times, time(NULL),
			    gt_plugin.config.max_wait_s);
	return &wait->times;
}

static bool sleeps(const job_record_t *job, gt_waiting_t *waiting)
{
	return job && gt_sleepers_is_waiting(job, waiting) &&
	       job->details->begin_time == waiting->until;
}

static bool stays_asleep(uint32_t job_id, void *arg)
{
	gt_waiting_t waiting;

	(void) arg;
	return sleeps(find_job_record(job_id), &waiting);
}

extern bool gt_sleepers_may_join(const job_record_t *job)
{
	static time_t swept;
	time_t now = time(NULL);

	if (gt_asleep_has_room(job->job_id, job->user_id))
		return true;
	if (swept == now || !find_job_record)
		return false;
	swept = now;	/* once a second: some may have woken by themselves */
	gt_asleep_keep(stays_asleep, NULL);
	return gt_asleep_has_room(job->job_id, job->user_id);
}

static int recover_job(void *item, void *arg)
{
	job_record_t *job = item;
	gt_waiting_t waiting;

	(void) arg;
	if (!gt_sleepers_is_waiting(job, &waiting))
		return 0;
	if (!gt_asleep_has_room(job->job_id, job->user_id)) {
		if (job->details->begin_time == waiting.until)
			gt_begin_time_give_back(job, &waiting);
		return 0;
	}
	gt_sleepers_find(job, &waiting);
	gt_asleep_add(job->job_id, job->user_id);
	set_alarm(waiting.until);
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
	return job->node_bitmap && job->gres_list_req && gt_job_request(job);
}

/* RET true if the engine may be asked about the job now; else it sleeps until it may */
static bool wake(job_record_t *job, gt_waiting_t *waiting,
		 const gt_wait_times_t *times)
{
	time_t next = times->asked + gt_wait_apart_s(times);

	if (next > last_end && gt_plugin_may_act()) {
		if (next < waiting->until)
			gt_sleep_until(job, waiting, next);
		return false;
	}
	gt_begin_time_give_back(job, waiting);
	job->start_time = 0;
	return true;
}

typedef struct {
	bitstr_t *nodes;	/* of the job that ended */
	bool woken;
} waking_t;

static bool wake_or_keep(uint32_t job_id, void *arg)
{
	job_record_t *job = find_job_record(job_id);
	waking_t *waking = arg;
	gt_waiting_t waiting;

	if (!sleeps(job, &waiting))
		return false;
	if (!may_use(job, waking->nodes) ||
	    !wake(job, &waiting, gt_sleepers_find(job, &waiting)))
		return true;
	waking->woken = true;
	return false;
}

extern void gt_sleepers_wake(const job_record_t *ended)
{
	waking_t waking = { .nodes = ended->node_bitmap };

	if (!gt_plugin.active || !find_job_record || !had_gpus(ended))
		return;
	last_end = time(NULL);
	gt_sleepers_recover();
	gt_asleep_keep(wake_or_keep, &waking);
	if (!waking.woken)
		return;
	last_job_update = last_end;
	if (queue_job_scheduler)
		queue_job_scheduler();
}

extern void gt_sleepers_forget(void)
{
	gt_asleep_clear();
	recovered = false;
}

extern void gt_sleepers_stop(void)
{
	stop_alarms();
	gt_sleepers_forget();
	gt_postponed_free();
}
