#include "question.h"

#include "admin_comment.h"
#include "gpus.h"
#include "plugin.h"
#include "request.h"

#define HINT_BYTES 4096
#define NAME_BYTES 1024

/*
 * Slurm sorts nodes by sched_weight. Its low byte is used by cons_tres while it
 * selects. The next 32 bits are the node's Weight. The highest bits are set for
 * nodes to be taken last: one that must boot first, or one outside of the job's
 * flexible reservation.
 */
static uint64_t weight(const node_record_t *node)
{
	return node->sched_weight >> 8;
}

static uint64_t highest_weight(bitstr_t *nodes)
{
	uint64_t highest = 0;
	node_record_t *node;

	for (int i = 0; (node = next_node_bitmap(nodes, &i)); i++)
		if (weight(node) > highest)
			highest = weight(node);
	return highest;
}

/* Nodes besides Slurm's own that the job could use; NULL if too many */
static bitstr_t *other_nodes(const gt_question_t *question)
{
	const gt_config_t *config = &gt_plugin.config;
	uint64_t limit = highest_weight(question->own) |
			 (config->respect_weight ? 0 : UINT32_MAX);
	bitstr_t *nodes = bit_copy(question->own);
	node_record_t *node;

	for (int i = 0; (node = next_node_bitmap(question->offered, &i)); i++)
		if (weight(node) <= limit &&
		    gt_request_may_use(question->test, i) &&
		    gt_node_free(i, question->gpus))
			bit_set(nodes, i);
	if (bit_set_count(nodes) <= (int) config->max_candidates)
		return nodes;
	FREE_NULL_BITMAP(nodes);
	return NULL;
}

static void write_hint(gt_line_t *line, const job_record_t *job)
{
	gt_slice_t hint = gt_hint(job->admin_comment, job->comment);
	char *text;

	if (!hint.len)
		return;
	text = xstrndup(hint.text, hint.len);
	gt_line_text(line, "hint", text, HINT_BYTES);
	xfree(text);
}

static void write_job(gt_line_t *line, const gt_question_t *question)
{
	const job_record_t *job = question->test->job;

	gt_line_number(line, "job", job->job_id);
	gt_line_number(line, "array", job->array_job_id);
	gt_line_number(line, "uid", job->user_id);
	gt_line_text(line, "account", job->account, NAME_BYTES);
	gt_line_text(line, "partition",
		     job->part_ptr ? job->part_ptr->name : job->partition,
		     NAME_BYTES);
	gt_line_text(line, "type", question->gpus->type_name, NAME_BYTES);
	write_hint(line, job);
}

static void write_nodes(gt_line_t *line, const gt_question_t *question)
{
	node_record_t *node;

	for (int i = 0; (node = next_node_bitmap(question->asked, &i)); i++) {
		gt_candidate_t candidate = {
			.name = node->name,
			.total = gt_node_total(i),
			.free = gt_node_free(i, question->gpus),
			.own = bit_test(question->own, i) ?
			       gt_selected(question->gpus, i) : 0,
			.weight = node->config_ptr->weight,
		};

		gt_line_candidate(line, &candidate);
	}
}

extern bool gt_question_write(gt_question_t *question, gt_line_t *line,
			      uint64_t id, const gt_postponement_t *earlier)
{
	question->own = bit_copy(question->test->job->job_resrcs->node_bitmap);
	if (!gt_request_keeps_nodes(question->test))
		question->asked = other_nodes(question);
	if (!question->asked)
		question->asked = bit_copy(question->own);
	gt_line_begin(line, "place");
	gt_line_number(line, "id", id);
	write_job(line, question);
	gt_line_number(line, "postponed", earlier->postponed);
	gt_line_number(line, "waited_s", earlier->waited_s);
	write_nodes(line, question);
	return gt_line_end(line);
}

extern void gt_question_free(gt_question_t *question)
{
	FREE_NULL_BITMAP(question->own);
	FREE_NULL_BITMAP(question->asked);
}
