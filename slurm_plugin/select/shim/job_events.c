#include "job_events.h"

#include "gpus.h"
#include "note.h"
#include "plugin.h"
#include "postpone.h"
#include "postponed.h"

/* Slurm chooses, begins and starts a job in one go, under the job write lock. */
static struct {
	const job_record_t *chosen;
	gt_result_t result;
	char note[GT_NOTE_MAX + 1];
	const job_record_t *begun;
	bool advised;	/* the one that began: its GPUs are the engine's choice */
} next;

extern void gt_job_chosen(const job_record_t *job, gt_result_t result,
			  const char *note)
{
	next.chosen = job;
	next.result = result;
	gt_note_copy(next.note, sizeof(next.note), note);
}

extern void gt_job_forget_chosen(void)
{
	next.chosen = next.begun = NULL;
}

/* "0,3" */
static void list_gpus(char *text, size_t size, uint64_t gpus)
{
	size_t len = 0;

	text[0] = '\0';
	for (int i = 0; i < GT_GPUS_MAX && len < size; i++)
		if (gpus >> i & 1)
			len += snprintf(text + len, size - len, "%s%d",
					len ? "," : "", i);
}

/* "dgx1:0,3 dgx2:1,2", as long as it fits */
static void describe(const job_record_t *job, char *text, size_t size)
{
	const gres_state_t *request = gt_job_request(job);
	node_record_t *node;
	size_t len = 0;

	text[0] = '\0';
	if (!request || !job->job_resrcs)
		return;
	for (int i = 0;
	     (node = next_node_bitmap(job->job_resrcs->node_bitmap, &i)) &&
	     len < size; i++) {
		char list[200];

		list_gpus(list, sizeof(list), gt_selected(request->gres_data, i));
		len += snprintf(text + len, size - len, "%s%s:%s",
				len ? " " : "", node->name, list);
	}
}

/* RET true if `note` shall replace the bracket's note */
static bool write_note(const job_record_t *job, const gt_bracket_t *bracket,
		       char *note, size_t size)
{
	gt_waiting_t waiting;
	bool was_waiting = gt_waiting_read(bracket->note, &waiting);

	note[0] = '\0';
	if (next.chosen != job)
		return was_waiting;
	if (next.result == GT_USED && !next.note[0])
		describe(job, note, size);
	else if (next.result == GT_USED || next.result == GT_PASS)
		snprintf(note, size, "%s", next.note);
	else if (next.result == GT_ALT) {
		describe(job, note, size - 32);
		strcat(note, " within Slurm's own nodes");
	} else if (bracket->found)
		snprintf(note, size, "Slurm's own choice (%s)",
			 gt_result_name(next.result));
	return note[0] || was_waiting;
}

extern void gt_job_begins(job_record_t *job)
{
	char note[GT_NOTE_MAX + 1];
	gt_bracket_t bracket;

	next.begun = job;
	next.advised = next.chosen == job &&
		       (next.result == GT_USED || next.result == GT_ALT);
	gt_bracket_read(job->admin_comment, &bracket);
	if (gt_plugin.active && gt_plugin.quiet)
		gt_note_remove(job);
	else if (gt_plugin.active &&
		 write_note(job, &bracket, note, sizeof(note)))
		gt_note_write(job, note);
	next.chosen = NULL;
	gt_postponed_drop(job->job_id);
	gt_postpone_begun(job);
}

static void begin_line(gt_line_t *line, const char *verb,
		       const job_record_t *job)
{
	gt_line_begin(line, verb);
	gt_line_number(line, "job", job->job_id);
	gt_line_number(line, "array", job->array_job_id);
}

/* RET the entry of GPUs, else that of shares of them, or NULL */
static gres_state_t *of_gpus(list_t *gres)
{
	gres_state_t *found = gres ? list_find_first(gres, gt_is_gpu, NULL) :
				     NULL;

	return found || !gres ? found :
		list_find_first(gres, gt_is_shares, NULL);
}

/* RET true if the job has GPUs that we can name */
static bool add_gpus(gt_line_t *line, const job_record_t *job)
{
	gres_state_t *found = of_gpus(job->gres_list_alloc);
	gres_job_state_t *gpus = found ? found->gres_data : NULL;
	bool any = false;
	uint32_t n = 0;
	node_record_t *node;

	if (!gpus || !gpus->gres_bit_alloc || !job->job_resrcs)
		return false;
	if (gt_is_shares(found, NULL))
		gt_line_number(line, "shared", 1);
	for (int i = 0; n < gpus->node_cnt &&
	     (node = next_node_bitmap(job->job_resrcs->node_bitmap, &i)); i++) {
		uint64_t mask = gt_mask(gpus->gres_bit_alloc[n++]);

		if (!mask)
			continue;
		gt_line_placed(line, node->name, mask);
		any = true;
	}
	return any;
}

/* The books of GPUs are Slurm's alone: what was chosen and what it then took may differ. */
static void check_taken(const job_record_t *job)
{
	gres_state_t *request = gt_job_request(job);
	gres_state_t *found = of_gpus(job->gres_list_alloc);
	gres_job_state_t *taken = found ? found->gres_data : NULL;
	uint32_t n = 0;

	if (!request || !gt_is_gpu(request, NULL) || !taken ||
	    !taken->gres_bit_alloc || !job->job_resrcs)
		return;
	for (int i = 0; n < taken->node_cnt &&
	     next_node_bitmap(job->job_resrcs->node_bitmap, &i); i++)
		if (gt_mask(taken->gres_bit_alloc[n++]) !=
		    gt_selected(request->gres_data, i)) {
			error("gputopo: %pJ: Slurm took other GPUs than were chosen",
			      job);
			return;
		}
}

extern void gt_job_started(const job_record_t *job)
{
	gt_line_t *line = &gt_plugin.line;

	if (next.begun != job)
		return;		/* it was running before slurmctld started */
	next.begun = NULL;
	if (next.advised)
		check_taken(job);
	if (!gt_plugin_may_act())
		return;
	begin_line(line, "started", job);
	if (add_gpus(line, job) && gt_line_end(line))
		gt_channel_tell(gt_plugin_channel(), &gt_plugin.config,
				line);
}

extern void gt_job_ended(const job_record_t *job)
{
	gt_line_t *line = &gt_plugin.line;

	if (!gt_plugin_may_act() || !of_gpus(job->gres_list_req))
		return;
	begin_line(line, "ended", job);
	if (gt_line_end(line))
		gt_channel_tell(gt_plugin_channel(), &gt_plugin.config,
				line);
}
