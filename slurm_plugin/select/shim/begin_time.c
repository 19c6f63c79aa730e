#include "begin_time.h"

#include "alarm.h"
#include "protocol.h"

extern void gt_note_write(job_record_t *job, const char *note)
{
	char *comment = gt_bracket_write(job->admin_comment,
					 gt_hint(job->admin_comment,
						 job->comment), note);

	if (!comment)
		return;
	xfree(job->admin_comment);
	job->admin_comment = xstrdup(comment);
	free(comment);
}

extern bool gt_wait_note_read(const job_record_t *job, gt_waiting_t *waiting)
{
	gt_bracket_t bracket;

	gt_bracket_read(job->admin_comment, &bracket);
	return gt_waiting_read(bracket.note, waiting);
}

extern void gt_wait_note_write(job_record_t *job, const gt_waiting_t *waiting)
{
	char sentence[GT_NOTE_MAX + 160];

	gt_waiting_write(sentence, sizeof(sentence), waiting);
	gt_note_write(job, sentence);
}

extern void gt_begin_time_set(job_record_t *job, gt_waiting_t *waiting,
			      time_t until)
{
	waiting->until = until;
	job->details->begin_time = until;
	job->start_time = until;	/* where backfill may plan for it */
	last_job_update = time(NULL);
	gt_alarm_set(until);
}

extern void gt_begin_time_give_back(job_record_t *job,
				    const gt_waiting_t *waiting)
{
	job->details->begin_time = waiting->begin;
	/* Slurm counts the age from the begin time where it has none yet */
	if (job->details->accrue_time == waiting->until)
		job->details->accrue_time = waiting->begin;
}
