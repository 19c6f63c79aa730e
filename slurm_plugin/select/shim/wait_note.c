#include "wait_note.h"

#include "protocol.h"

extern bool gt_wait_note_read(const job_record_t *job, gt_waiting_t *waiting)
{
	gt_bracket_t bracket;

	gt_bracket_read(job->admin_comment, &bracket);
	return gt_waiting_read(bracket.note, waiting);
}

extern void gt_wait_note_write(job_record_t *job, const gt_waiting_t *waiting,
			       const char *why)
{
	char sentence[GT_NOTE_MAX + 160] = "", same[GT_NOTE_MAX + 1], *comment;
	gt_bracket_t bracket;
	gt_slice_t hint;

	gt_bracket_read(job->admin_comment, &bracket);
	hint = bracket.found ? bracket.hint : gt_comment_hint(job->comment);
	if (waiting && !why) {
		snprintf(same, sizeof(same), "%.*s", (int) waiting->why.len,
			 waiting->why.len ? waiting->why.text : "");
		why = same;
	}
	if (waiting)
		gt_waiting_write(sentence, sizeof(sentence), waiting, why);
	if (!(comment = gt_bracket_write(job->admin_comment, hint, sentence)))
		return;
	xfree(job->admin_comment);
	job->admin_comment = xstrdup(comment);
	free(comment);
}
