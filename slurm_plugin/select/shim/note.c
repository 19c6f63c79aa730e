#define _GNU_SOURCE
#include "note.h"

#include "plugin.h"
#include "postponed.h"

/* ------------------------------------------------------------------ memory */

static bool is_gone(uint32_t job_id)
{
	const job_record_t *job = find_job_record(job_id);

	return !job || !IS_JOB_PENDING(job);
}

static void remember(const job_record_t *job, const gt_waiting_t *waiting)
{
	char why[GT_NOTE_MAX + 1] = "";
	gt_postponed_t *known;

	/* the reason may point into the one we replace */
	if (waiting->why.text)
		snprintf(why, sizeof(why), "%.*s", (int) waiting->why.len,
			 waiting->why.text);
	if (find_job_record && gt_postponed_sweep_due())
		gt_postponed_sweep(is_gone);
	known = gt_postponed_add(job->job_id);
	known->has_note = true;
	known->waiting = *waiting;
	memcpy(known->why, why, sizeof(why));
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
	gt_postponed_drop(job->job_id);
	write_bracket(job, note);
}

extern void gt_note_remove(job_record_t *job)
{
	gt_bracket_t bracket;

	gt_bracket_read(job->admin_comment, &bracket);
	if (bracket.found)
		replace_comment(job, gt_bracket_remove(job->admin_comment));
}

extern bool gt_note_read_waiting(const job_record_t *job, gt_waiting_t *waiting)
{
	gt_postponed_t *known = gt_postponed_find(job->job_id);
	gt_bracket_t bracket;

	if (known && known->has_note) {
		*waiting = known->waiting;
		waiting->why = (gt_slice_t) { known->why, strlen(known->why) };
		return true;
	}
	gt_bracket_read(job->admin_comment, &bracket);
	return gt_waiting_read(bracket.note, waiting);
}

extern void gt_note_write_waiting(job_record_t *job, const gt_waiting_t *waiting)
{
	char sentence[GT_NOTE_MAX + 160];

	gt_waiting_write(sentence, sizeof(sentence), waiting);
	remember(job, waiting);
	write_bracket(job, sentence);
}
