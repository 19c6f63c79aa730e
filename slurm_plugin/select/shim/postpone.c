#include "postpone.h"

#include "note.h"
#include "plugin.h"
#include "sleepers.h"
#include "windows.h"

/* Tasks of an array that start within this time of the first share its waits. */
#define TOGETHER_S 60

/* ---------------------------------------------------------------- settling */

/*
 * Slurm itself changes the begin time of array tasks while a limit on how many may
 * run at once (%N) holds them back. A new begin time there was not set by a user.
 */
static bool has_task_limit(const job_record_t *job)
{
	const job_record_t *array = job->array_job_id && find_job_record ?
		find_job_record(job->array_job_id) : NULL;

	return array && array->array_recs && array->array_recs->max_run_tasks;
}

/* RET true if the note is about earlier tasks, at a time when this one could not start */
static bool is_anothers(const job_record_t *job, const gt_waiting_t *waiting)
{
	return !waiting->until && waiting->begin &&
	       (job->details->begin_time > waiting->begin ||
		time(NULL) - waiting->begin > TOGETHER_S);
}

extern void gt_postpone_settle(job_record_t *job, gt_earlier_t *earlier)
{
	time_t now = time(NULL), begin = job->details->begin_time;
	gt_waiting_t *waiting = &earlier->waiting;

	gt_sleepers_recover();
	memset(earlier, 0, sizeof(*earlier));
	if (!gt_note_read_waiting(job, waiting))
		return;
	if (is_anothers(job, waiting)) {
		gt_note_write(job, "");
		memset(earlier, 0, sizeof(*earlier));
		return;
	}
	if (waiting->since > now)	/* the clock was set back */
		waiting->since = now;
	earlier->waited_s = now > waiting->since ? now - waiting->since : 0;
	if (!waiting->until)
		return;
	earlier->asleep = begin == waiting->until && begin > now;
	if (begin == waiting->until)
		gt_begin_time_give_back(job, waiting);
	else if (waiting->begin && begin != waiting->begin)
		earlier->overridden = !has_task_limit(job);
}

extern void gt_postpone_sleep_on(job_record_t *job,
				 const gt_earlier_t *earlier)
{
	if (earlier->asleep)
		job->details->begin_time = earlier->waiting.until;
}

/* -------------------------------------------------------------- postponing */

/* Other jobs were ended for this one; if it waited, more would be ended later. */
static bool has_preempted(const job_record_t *job)
{
	return job->details->preempt_start_time ||
	       (job->array_recs && job->array_recs->pend_run_tasks);
}

static bool may_wait(const job_record_t *job, const gt_earlier_t *earlier,
		     uint32_t bound_s)
{
	/*
	 * The parts of a heterogeneous job must start together. A job with a
	 * deadline may not have the time. Whoever set another begin time wants
	 * the job to start then.
	 */
	return !job->het_job_id && !job->deadline && !has_preempted(job) &&
	       !earlier->overridden && earlier->waited_s < bound_s;
}

/*
 * Starts the job's age now, as Slurm does for a job that finds no room. At a job's
 * first test Slurm may not have done so yet, and would count from our begin time.
 * Arrays under limits are left out: Slurm may split tasks off them here, which must
 * not happen during a selection. gt_begin_time_give_back() corrects their age later.
 */
static void keep_age(job_record_t *job)
{
	if (!acct_policy_handle_accrue_time || !&accounting_enforce ||
	    job->details->accrue_time ||
	    (job->array_recs &&
	     (accounting_enforce & ACCOUNTING_ENFORCE_LIMITS)))
		return;
	acct_policy_handle_accrue_time(job, false);
}

static void schedule_on(void)
{
	/* the next pass gives the job Reason=BeginTime and looks at other jobs */
	if (queue_job_scheduler)
		queue_job_scheduler();
	if (schedule_job_save)
		schedule_job_save();
}

extern bool gt_postpone(job_record_t *job, const gt_earlier_t *earlier,
			const gt_reply_t *reply)
{
	uint32_t cap = gt_plugin.config.max_postponements;
	uint32_t most_s = gt_wait_bound_s(reply->max_wait_s,
					  gt_plugin.config.max_wait_s);
	gt_waiting_t waiting = earlier->waiting;
	time_t now = time(NULL), wanted_s, next_s;
	int64_t window_s;
	gt_wait_times_t *times;

	if (!may_wait(job, earlier, most_s) || !gt_sleepers_may_join(job) ||
	    (window_s = gt_window_s(job, now)) <= 0)
		return false;
	wanted_s = gt_wait_left_s(most_s, earlier->waited_s, reply->wait_s);
	wanted_s = MIN(wanted_s, window_s);
	times = gt_sleepers_find(job, &waiting);
	times->max_wait_s = reply->max_wait_s;
	if (!gt_wait_count(times, &waiting, now, wanted_s, cap))
		return false;
	next_s = gt_wait_next_s(times, now, wanted_s,
				gt_sleepers_gpus_to_come(job));
	next_s = MIN(next_s, window_s);
	if (!waiting.since)
		waiting.since = now;
	waiting.cap = cap;
	waiting.why = (gt_slice_t) { reply->note, strlen(reply->note) };
	/* Slurm would change 0 to the present, which would look like a user's update */
	if (!job->details->begin_time)
		job->details->begin_time = now;
	waiting.begin = job->details->begin_time;
	keep_age(job);
	gt_sleep_until(job, &waiting, now + next_s);
	schedule_on();
	return true;
}

extern bool gt_postpone_go_on(job_record_t *job, const gt_earlier_t *earlier)
{
	gt_waiting_t waiting = earlier->waiting;
	time_t now = time(NULL);
	gt_wait_times_t *times;
	int64_t window_s, left_s;
	uint32_t most_s;

	if (!waiting.until)
		return false;
	times = gt_sleepers_find(job, &waiting);
	most_s = gt_wait_bound_s(times->max_wait_s,
				 gt_plugin.config.max_wait_s);
	if (!may_wait(job, earlier, most_s) || !gt_sleepers_may_join(job) ||
	    (window_s = gt_window_s(job, now)) <= 0)
		return false;
	gt_wait_count_question(times, now);
	left_s = gt_wait_left_s(most_s, earlier->waited_s,
				gt_wait_apart_s(times));
	gt_sleep_until(job, &waiting, now + MIN(left_s, window_s));
	schedule_on();
	return true;
}

extern void gt_postpone_begun(const job_record_t *task)
{
	job_record_t *others = task->array_job_id && find_job_record ?
		find_job_record(task->array_job_id) : NULL;
	gt_waiting_t waiting;

	if (!others || others == task || !gt_sleepers_is_waiting(others, &waiting))
		return;
	/* Slurm copied this task's note to the others: they have waited, too */
	waiting.until = 0;
	waiting.begin = time(NULL);
	gt_note_write_waiting(others, &waiting);
}
