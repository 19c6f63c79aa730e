#include "wait.h"

#include "alarm.h"
#include "gpus.h"
#include "plugin.h"
#include "wait_note.h"

/* A node is COMPLETING right after a job; later than this it is stuck. */
#define COMPLETING_S 60
/* A waiting job costs no more looks than Slurm's own backfill, every 30 s. */
#define APART_MAX_S 30
/* Tasks of an array that start so soon after the first waited with it. */
#define TOGETHER_S 60

/* A job that waits: what need not outlive slurmctld. */
typedef struct {
	uint32_t job_id;
	uint32_t looks;		/* questions about it within this wait */
	time_t looked;		/* when the last one was */
	time_t end;		/* when this wait has run its course */
} sleeper_t;

static sleeper_t *sleepers;
static int sleeper_count;
static bool recovered;		/* sleepers was filled after a restart */
static time_t last_end;		/* when a GPU job last ended */

/* ----------------------------------------------------------- the sleepers */

/* RET true if the job is pending and has been postponed; maybe woken since */
static bool is_waiting(const job_record_t *job, gt_waiting_t *waiting)
{
	return job->details && IS_JOB_PENDING(job) && job->admin_comment &&
	       gt_wait_note_read(job, waiting) && waiting->until;
}

static bool is_asleep(const job_record_t *job, const gt_waiting_t *waiting)
{
	return job->details->begin_time == waiting->until;
}

/* Times of the future are of before the clock was set back: its wait is over. */
static sleeper_t *in_time(sleeper_t *sleeper)
{
	time_t now = time(NULL);

	if (sleeper->looked > now ||
	    sleeper->end - now > gt_plugin.config.max_wait_s) {
		sleeper->looked = 0;
		sleeper->end = now;
	}
	return sleeper;
}

static sleeper_t *find_sleeper(const job_record_t *job,
			       const gt_waiting_t *waiting)
{
	for (int i = 0; i < sleeper_count; i++)
		if (sleepers[i].job_id == job->job_id)
			return in_time(&sleepers[i]);
	xrecalloc(sleepers, sleeper_count + 1, sizeof(*sleepers));
	sleepers[sleeper_count] = (sleeper_t) {
		.job_id = job->job_id,
		.end = waiting->until,
	};
	return &sleepers[sleeper_count++];
}

static int recover_job(void *item, void *arg)
{
	job_record_t *job = item;
	gt_waiting_t waiting;

	(void) arg;
	if (is_waiting(job, &waiting)) {
		find_sleeper(job, &waiting);
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

/*
 * How long after a look the next one may be. At once when GPUs came free is what
 * a job waits for; but where jobs end all the time, looking at every end is a
 * selection in every pass for every job that waits.
 */
static time_t apart_s(const sleeper_t *sleeper)
{
	if (!sleeper->looks)
		return 1;
	return sleeper->looks > 5 ? APART_MAX_S : 1 << (sleeper->looks - 1);
}

static void sleep_until(job_record_t *job, gt_waiting_t *waiting, time_t until)
{
	waiting->until = until;
	job->details->begin_time = until;
	job->start_time = until;	/* where backfill may plan for it */
	last_job_update = time(NULL);
	gt_alarm_set(until);
}

/* ---------------------------------------------------------------- settling */

/*
 * Slurm takes the begin time off the tasks that a limit on how many may run at
 * once (%N) holds back, and gives them a new one: that is nobody's wish.
 */
static bool has_task_limit(const job_record_t *job)
{
	const job_record_t *array = job->array_job_id && find_job_record ?
		find_job_record(job->array_job_id) : NULL;

	return array && array->array_recs && array->array_recs->max_run_tasks;
}

/* RET true if tasks before these waited, but these could not have started then */
static bool is_anothers(const job_record_t *job, const gt_waiting_t *waiting)
{
	return !waiting->until && waiting->begin &&
	       (job->details->begin_time > waiting->begin ||
		time(NULL) - waiting->begin > TOGETHER_S);
}

static void give_back(job_record_t *job, const gt_waiting_t *waiting)
{
	job->details->begin_time = waiting->begin;
	/* Slurm counts the age from the begin time where it has none yet */
	if (job->details->accrue_time == waiting->until)
		job->details->accrue_time = waiting->begin;
}

extern void gt_wait_settle(job_record_t *job, gt_postponement_t *earlier)
{
	time_t now = time(NULL), begin = job->details->begin_time;
	gt_waiting_t *waiting = &earlier->waiting;

	recover();
	memset(earlier, 0, sizeof(*earlier));
	if (!job->admin_comment || !gt_wait_note_read(job, waiting))
		return;
	if (is_anothers(job, waiting)) {
		gt_wait_note_write(job, NULL, NULL);
		memset(earlier, 0, sizeof(*earlier));
		return;
	}
	if (waiting->since > now)	/* the clock was set back */
		waiting->since = now;
	earlier->postponed = waiting->count;
	earlier->waited_s = now > waiting->since ? now - waiting->since : 0;
	if (!waiting->until)
		return;
	earlier->asleep = begin == waiting->until && begin > now;
	if (begin == waiting->until)
		give_back(job, waiting);
	else if (waiting->begin && begin != waiting->begin)
		earlier->overridden = !has_task_limit(job);
}

extern void gt_wait_sleep_on(job_record_t *job,
			     const gt_postponement_t *earlier)
{
	if (earlier->asleep)
		job->details->begin_time = earlier->waiting.until;
}

/* -------------------------------------------------------------- postponing */

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

/* GPUs may be about to come free on nodes that Slurm does not offer yet. */
static bool is_completing(const job_record_t *job)
{
	return time(NULL) - last_end < COMPLETING_S && &cg_node_bitmap &&
	       cg_node_bitmap && may_use(job, cg_node_bitmap);
}

/* The GPUs are free because others were ended for it: it would end more later. */
static bool has_preempted(const job_record_t *job)
{
	return job->details->preempt_start_time ||
	       (job->array_recs && job->array_recs->pend_run_tasks);
}

static bool may_wait(const job_record_t *job, const gt_postponement_t *earlier)
{
	/*
	 * Parts of a heterogeneous job must start together, a deadline is a
	 * promise, and whoever set another begin time wants the job to start.
	 */
	return !job->het_job_id && !job->deadline && !has_preempted(job) &&
	       !earlier->overridden &&
	       earlier->waited_s < gt_plugin.config.max_wait_s;
}

/*
 * Age begins where Slurm has it begin for a job that finds no room. A first test
 * may come before Slurm has noted that, and then our begin time would count.
 * Under limits Slurm may split tasks off an array here, which a selection in
 * progress does not bear: for those gt_wait_settle() puts it right afterwards.
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

static time_t left_s(const gt_postponement_t *earlier, time_t wanted_s)
{
	time_t left = gt_plugin.config.max_wait_s - earlier->waited_s;

	return wanted_s < left ? wanted_s : left;
}

/* A pass that tries a job in each of its partitions looks at it once. */
static void count_look(sleeper_t *sleeper, time_t now)
{
	if (now != sleeper->looked)
		sleeper->looks++;
	sleeper->looked = now;
}

/* Only a wait that ran its course counts; one that is cut short goes on. */
static bool count_wait(gt_waiting_t *waiting, sleeper_t *sleeper, time_t now,
		       time_t seconds)
{
	if (waiting->until && now < sleeper->end) {
		count_look(sleeper, now);
		return true;
	}
	if (waiting->count >= gt_plugin.config.max_postponements)
		return false;
	waiting->count++;
	sleeper->looks = 0;
	sleeper->looked = now;
	sleeper->end = now + seconds;
	return true;
}

static void schedule_on(void)
{
	/* the next pass shows Reason=BeginTime and goes on with other jobs */
	if (queue_job_scheduler)
		queue_job_scheduler();
	if (schedule_job_save)
		schedule_job_save();
}

extern bool gt_wait_postpone(job_record_t *job,
			     const gt_postponement_t *earlier,
			     uint32_t seconds, const char *note)
{
	time_t now = time(NULL), wanted_s = left_s(earlier, seconds), next_s;
	gt_waiting_t waiting = earlier->waiting;
	sleeper_t *sleeper;

	if (!may_wait(job, earlier))
		return false;
	sleeper = find_sleeper(job, &waiting);
	if (!count_wait(&waiting, sleeper, now, wanted_s))
		return false;
	next_s = apart_s(sleeper);
	if (!is_completing(job) && next_s < wanted_s)
		next_s = wanted_s;
	if (next_s > sleeper->end - now)
		next_s = sleeper->end - now;
	if (!waiting.since)
		waiting.since = now;
	waiting.cap = gt_plugin.config.max_postponements;
	/* 0 would be set to the present later, and look like somebody's wish */
	if (!job->details->begin_time)
		job->details->begin_time = now;
	waiting.begin = job->details->begin_time;
	keep_age(job);
	sleep_until(job, &waiting, now + next_s);
	gt_wait_note_write(job, &waiting, note);
	schedule_on();
	return true;
}

extern bool gt_wait_go_on(job_record_t *job, const gt_postponement_t *earlier)
{
	gt_waiting_t waiting = earlier->waiting;
	time_t now = time(NULL);
	sleeper_t *sleeper;

	if (!waiting.until || !may_wait(job, earlier))
		return false;
	sleeper = find_sleeper(job, &waiting);
	count_look(sleeper, now);
	sleep_until(job, &waiting,
		    now + left_s(earlier, apart_s(sleeper)));
	gt_wait_note_write(job, &waiting, NULL);
	schedule_on();
	return true;
}

extern void gt_wait_begun(const job_record_t *task)
{
	job_record_t *others = task->array_job_id && find_job_record ?
		find_job_record(task->array_job_id) : NULL;
	gt_waiting_t waiting;

	if (!others || others == task || !is_waiting(others, &waiting))
		return;
	/* Slurm copied the note of this task: they sleep no more, but waited */
	waiting.until = 0;
	waiting.begin = time(NULL);
	gt_wait_note_write(others, &waiting, NULL);
}

/* ------------------------------------------------------------------ waking */

static bool had_gpus(const job_record_t *job)
{
	return job->node_bitmap && job->gres_list_req && gt_job_gpus(job);
}

/* RET true if the job may be looked at now */
static bool wake(job_record_t *job, gt_waiting_t *waiting,
		 const sleeper_t *sleeper)
{
	time_t next = sleeper->looked + apart_s(sleeper);

	if (next > last_end && gt_plugin_may_act()) {
		if (next < waiting->until) {
			sleep_until(job, waiting, next);
			gt_wait_note_write(job, waiting, NULL);
		}
		return false;
	}
	give_back(job, waiting);
	job->start_time = 0;
	return true;
}

extern void gt_wait_wake(const job_record_t *ended)
{
	bool woken = false;
	int kept = 0;

	if (!gt_plugin.active || !find_job_record || !had_gpus(ended))
		return;
	last_end = time(NULL);
	recover();
	for (int i = 0; i < sleeper_count; i++) {
		job_record_t *job = find_job_record(sleepers[i].job_id);
		gt_waiting_t waiting;

		if (!job || !is_waiting(job, &waiting))
			continue;	/* no longer waiting: forget it */
		sleepers[kept++] = *in_time(&sleepers[i]);
		if (is_asleep(job, &waiting) &&
		    may_use(job, ended->node_bitmap) &&
		    wake(job, &waiting, &sleepers[kept - 1]))
			woken = true;
	}
	sleeper_count = kept;
	if (!woken)
		return;
	last_job_update = last_end;
	if (queue_job_scheduler)
		queue_job_scheduler();
}

extern void gt_wait_forget(void)
{
	sleeper_count = 0;
	recovered = false;
}

extern void gt_wait_stop(void)
{
	gt_alarm_stop();
	gt_wait_forget();
	xfree(sleepers);
}
