#define _GNU_SOURCE
#include "note.h"

#include "plugin.h"

/* ------------------------------------------------------------------ memory */

typedef struct {
	uint32_t job_id;
	gt_waiting_t waiting;
	char why[GT_NOTE_MAX + 1];
} wait_t;

static wait_t *waits;
static int wait_count;

static wait_t *find_wait(uint32_t job_id)
{
	for (int i = 0; i < wait_count; i++)
		if (waits[i].job_id == job_id)
			return &waits[i];
	return NULL;
}

/* Forgets the jobs that ended while they waited. */
static void forget_gone(void)
{
	int kept = 0;

	if (!find_job_record)
		return;
	for (int i = 0; i < wait_count; i++) {
		const job_record_t *job = find_job_record(waits[i].job_id);

		if (job && IS_JOB_PENDING(job))
			waits[kept++] = waits[i];
	}
	wait_count = kept;
}

static void remember(const job_record_t *job, const gt_waiting_t *waiting)
{
	wait_t new = { .job_id = job->job_id, .waiting = *waiting };
	wait_t *known = find_wait(job->job_id);

	/* the reason may point into the one we replace */
	if (waiting->why.text)
		snprintf(new.why, sizeof(new.why), "%.*s",
			 (int) waiting->why.len, waiting->why.text);
	if (!known) {
		forget_gone();
		xrecalloc(waits, wait_count + 1, sizeof(*waits));
		known = &waits[wait_count++];
	}
	*known = new;
}

extern void gt_wait_forget(const job_record_t *job)
{
	wait_t *known = find_wait(job->job_id);

	if (known)
		*known = waits[--wait_count];
}

extern void gt_notes_stop(void)
{
	wait_count = 0;
	xfree(waits);
}

/* ------------------------------------------------------------ AdminComment */

extern gt_slice_t gt_job_hint(const job_record_t *job)
{
	gt_slice_t hint = gt_hint(job->admin_comment, job->comment);
	gt_bracket_t bracket;

	gt_bracket_read(job->admin_comment, &bracket);
	for (uint32_t i = 0; !bracket.found && !hint.len &&
	     job->spank_job_env && i < job->spank_job_env_size; i++)
		hint = gt_hint_of_option(job->spank_job_env[i]);
	return hint;
}

static void replace_comment(job_record_t *job, char *comment)
{
	if (!comment)
		return;
	xfree(job->admin_comment);
	job->admin_comment = xstrdup(comment);
	free(comment);
}

static void write_bracket(job_record_t *job, const char *note)
{
	if (!gt_plugin.quiet)
		replace_comment(job, gt_bracket_write(job->admin_comment,
						      gt_job_hint(job), note));
}

extern void gt_note_write(job_record_t *job, const char *note)
{
	gt_wait_forget(job);
	write_bracket(job, note);
}

extern void gt_note_remove(job_record_t *job)
{
	gt_bracket_t bracket;

	gt_bracket_read(job->admin_comment, &bracket);
	if (bracket.found)
		replace_comment(job, gt_bracket_remove(job->admin_comment));
}

extern bool gt_wait_note_read(const job_record_t *job, gt_waiting_t *waiting)
{
	wait_t *known = find_wait(job->job_id);
	gt_bracket_t bracket;

	if (known) {
		*waiting = known->waiting;
		waiting->why = (gt_slice_t) { known->why, strlen(known->why) };
		return true;
	}
	gt_bracket_read(job->admin_comment, &bracket);
	return gt_waiting_read(bracket.note, waiting);
}

extern void gt_wait_note_write(job_record_t *job, const gt_waiting_t *waiting)
{
	char sentence[GT_NOTE_MAX + 160];

	gt_waiting_write(sentence, sizeof(sentence), waiting);
	remember(job, waiting);
	write_bracket(job, sentence);
}
