#include "wait.h"

#include "alarm.h"
#include "gpus.h"
#include "plugin.h"

/* A node is COMPLETING right after a job; later than this it is stuck. */
#define COMPLETING_S 10

static uint32_t *waiting_ids;	/* jobs that may be waiting */
static int waiting_count;
static bool recovered;		/* waiting_ids was filled after a restart */
static time_t last_end;		/* when a GPU job last ended */

static bool read_waiting(const job_record_t *job, gt_waiting_t *waiting)
{
	gt_bracket_t bracket;

	gt_bracket_read(job->admin_comment, &bracket);
	return gt_waiting_read(bracket.note, waiting);
}

/* RET true if the job is pending with the begin time that we gave it */
static bool is_asleep(const job_record_t *job, gt_waiting_t *waiting)
{
	return job->details && IS_JOB_PENDING(job) && job->admin_comment &&
	       read_waiting(job, waiting) && waiting->until &&
	       job->details->begin_time == waiting->until;
}

static void remember(uint32_t job_id)
{
	for (int i = 0; i < waiting_count; i++)
		if (waiting_ids[i] == job_id)
			return;
	xrecalloc(waiting_ids, waiting_count + 1, sizeof(*waiting_ids));
	waiting_ids[waiting_count++] = job_id;
}

static int recover_job(void *item, void *arg)
{
	job_record_t *job = item;
	gt_waiting_t waiting;

	(void) arg;
	if (is_asleep(job, &waiting)) {
		remember(job->job_id);
		gt_alarm_set(waiting.until);
	}
	return 0;
}

static void recover(void)
{
	if (!recovered && job_list)
		list_for_each(job_list, recover_job, NULL);
	recovered = true;
}

extern void gt_wait_settle(job_record_t *job, gt_postponement_t *earlier)
{
	time_t now = time(NULL), begin = job->details->begin_time;
	gt_waiting_t *waiting = &earlier->waiting;

	recover();
	memset(earlier, 0, sizeof(*earlier));
	if (!read_waiting(job, waiting))
		return;
	earlier->postponed = waiting->count;
	earlier->waited_s = now > waiting->since ? now - waiting->since : 0;
	earlier->open = now < waiting->until;
	if (waiting->until && begin == waiting->until)
		job->details->begin_time = waiting->begin;
	else if (waiting->begin && begin != waiting->begin)
		earlier->overridden = true;
}

/* GPUs may be about to come free on nodes that Slurm does not offer yet. */
static bool is_completing(const job_record_t *job)
{
	return time(NULL) - last_end < COMPLETING_S && &cg_node_bitmap &&
	       cg_node_bitmap && job->part_ptr && job->part_ptr->node_bitmap &&
	       bit_overlap_any(cg_node_bitmap, job->part_ptr->node_bitmap);
}

static bool may_wait(const job_record_t *job, const gt_postponement_t *earlier)
{
	/*
	 * Parts of a heterogeneous job must start together, a deadline is a
	 * promise, and whoever set another begin time wants the job to start.
	 */
	return !job->het_job_id && !job->deadline && !earlier->overridden &&
	       earlier->waited_s < gt_plugin.config.max_wait_s;
}

static void tell(job_record_t *job, const gt_waiting_t *waiting,
		 const char *note)
{
	char sentence[GT_NOTE_MAX + 160], *comment;
	gt_bracket_t bracket;
	gt_slice_t hint;

	gt_bracket_read(job->admin_comment, &bracket);
	hint = bracket.found ? bracket.hint : gt_comment_hint(job->comment);
	gt_waiting_write(sentence, sizeof(sentence), waiting, note);
	if (!(comment = gt_bracket_write(job->admin_comment, hint, sentence)))
		return;
	xfree(job->admin_comment);
	job->admin_comment = xstrdup(comment);
	free(comment);
}

extern bool gt_wait_postpone(job_record_t *job,
			     const gt_postponement_t *earlier,
			     uint32_t seconds, const char *note)
{
	const gt_config_t *config = &gt_plugin.config;
	bool completing = is_completing(job);
	gt_waiting_t waiting = earlier->waiting;
	time_t now = time(NULL);

	if (!may_wait(job, earlier))
		return false;
	/* only a wait that ran its course counts against the cap */
	if (!completing && !(earlier->open && waiting.count))
		waiting.count++;
	if (waiting.count > config->max_postponements)
		return false;
	if (completing)
		seconds = 1;
	if (seconds > config->max_wait_s - earlier->waited_s)
		seconds = config->max_wait_s - earlier->waited_s;
	if (!waiting.since)
		waiting.since = now;
	waiting.cap = config->max_postponements;
	/* 0 would be set to the present later, and look like somebody's wish */
	waiting.begin = job->details->begin_time ? job->details->begin_time :
						   now;
	waiting.until = now + seconds;
	tell(job, &waiting, note);
	job->details->begin_time = waiting.until;
	job->start_time = waiting.until; /* where backfill may plan for it */
	last_job_update = now;
	remember(job->job_id);
	gt_alarm_set(waiting.until);
	/* the next pass shows Reason=BeginTime and goes on with other jobs */
	if (queue_job_scheduler)
		queue_job_scheduler();
	if (schedule_job_save)
		schedule_job_save();
	return true;
}

static bool had_gpus(const job_record_t *job)
{
	return job->node_bitmap && job->gres_list_req && gt_job_gpus(job);
}

static bool shares_nodes(const job_record_t *job, const job_record_t *ended)
{
	return job->part_ptr && job->part_ptr->node_bitmap &&
	       bit_overlap_any(job->part_ptr->node_bitmap, ended->node_bitmap);
}

extern void gt_wait_wake(const job_record_t *ended)
{
	bool woken = false;
	int kept = 0;

	if (!gt_plugin.active || !find_job_record || !had_gpus(ended))
		return;
	last_end = time(NULL);
	recover();
	for (int i = 0; i < waiting_count; i++) {
		job_record_t *job = find_job_record(waiting_ids[i]);
		gt_waiting_t waiting;

		if (!job || !is_asleep(job, &waiting))
			continue;	/* no longer waiting: forget it */
		if (!shares_nodes(job, ended)) {
			waiting_ids[kept++] = waiting_ids[i];
			continue;
		}
		job->details->begin_time = waiting.begin;
		job->start_time = 0;
		woken = true;
	}
	waiting_count = kept;
	if (!woken)
		return;
	last_job_update = last_end;
	if (queue_job_scheduler)
		queue_job_scheduler();
}

extern void gt_wait_forget(void)
{
	waiting_count = 0;
	recovered = false;
}

extern void gt_wait_stop(void)
{
	gt_alarm_stop();
	gt_wait_forget();
	xfree(waiting_ids);
}
