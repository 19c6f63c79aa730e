#include "question.h"

#include "candidates.h"
#include "cluster.h"
#include "cores.h"
#include "gpus.h"
#include "layout.h"
#include "note.h"
#include "plugin.h"
#include "shares.h"

#define HINT_BYTES 4096

/* ------------------------------------------------- which jobs and nodes */

/* Slurm selects a job with a constraint such as "[a*2&b]" in several calls. */
static bool counts_features(const job_record_t *job)
{
	return job->details->features &&
	       strpbrk(job->details->features, "[*");
}

/* Any GRES counts, because mps and shards are parts of GPUs. For list_find_first() */
static int is_reserved(void *item, void *key)
{
	const gres_job_state_t *gres = ((gres_state_t *) item)->gres_data;
	int index = *(int *) key;

	return index < (int) gres->node_cnt && gres->gres_cnt_node_alloc &&
	       gres->gres_cnt_node_alloc[index];
}

extern gres_state_t *gt_request_gpus(const gt_test_t *test)
{
	const job_record_t *job = test->job;
	gres_state_t *request;

	if (test->mode != SELECT_MODE_RUN_NOW)
		return NULL;
	gt_plugin.left = "its record differs from what this plugin was built for";
	if (!gt_layout_job(job))
		return NULL;
	request = gt_job_request(job);
	gt_plugin.left = NULL;
	if (!job->job_id)
		gt_plugin.left = "it has no id yet";
	else if (counts_features(job))
		gt_plugin.left = "--constraint with counts";
	else if (job->details->whole_node & WHOLE_NODE_REQUIRED)
		gt_plugin.left = "whole nodes";
	else if (GT_INSIDE_GRES(test) ||
		 (job->resv_ptr && GT_RESERVATION_GRES(job->resv_ptr)))
		gt_plugin.left = "a reservation of GRES";
	else if (!request)
		gt_plugin.left = "no request for GPUs, or several";
	else if (gt_is_shares(request, NULL) && !gt_shares_by_parent())
		gt_plugin.left = "shares of GPUs that Slurm does not count one by one";
	return gt_plugin.left ? NULL : request;
}

/*
 * RET true if the node's GPUs can be chosen one by one and none of its GRES is
 * reserved for others. A job that names no type may get whole GPUs and slices at once
 */
static bool may_use(const gt_question_t *question, int index)
{
	list_t *reserved = GT_RESERVED_GRES(question->test);
	gt_shares_t shares;

	if (reserved && list_find_first(reserved, is_reserved, &index))
		return false;
	if (question->shares)
		return gt_node_shares(index, question->shares, &shares);
	return gt_node_is_plain(index) &&
	       (question->gpus->type_name || !gt_node_is_sliced(index));
}

/*
 * RET true if what Slurm chose can be asked about. Shares are: of one GPU on a node, which
 * is Slurm's rule without MULTIPLE_SHARING_GRES_PJ, and as many on each node
 */
static bool is_ours(gt_question_t *question, int index)
{
	uint64_t own = gt_selected(question->gpus, index), count;

	if (!question->shares)
		return own;
	count = gt_selected_count(question->gpus, index);
	if (!question->share_count)
		question->share_count = count;
	return own && !(own & (own - 1)) && count &&
	       count == question->share_count;
}

static bool preempts(const gt_test_t *test)
{
	return test->preemptee_job_list && *test->preemptee_job_list &&
	       list_count(*test->preemptee_job_list);
}

extern bool gt_request_is_open(gt_question_t *question)
{
	const job_record_t *job = question->test->job;

	gt_plugin.left = NULL;
	if (preempts(question->test))
		gt_plugin.left = "it preempts others";
	else if (!job->job_resrcs ||
		 !gt_layout_selection(job, question->gpus) ||
		 !job->job_resrcs->node_bitmap)
		gt_plugin.left = "what Slurm chose cannot be read";
	else if (job->details->whole_node & WHOLE_NODE_REQUIRED)
		gt_plugin.left = "whole nodes";
	else if (gt_shares_cores(job))
		gt_plugin.left = "Slurm gave it cores of other jobs";
	for (int i = 0; !gt_plugin.left &&
	     next_node_bitmap(job->job_resrcs->node_bitmap, &i); i++)
		if (!may_use(question, i) || !is_ours(question, i))
			gt_plugin.left = "GPUs that cannot be chosen one by one";
	return !gt_plugin.left;
}

/* ------------------------------------------------------------- the line */

extern bool gt_question_allows(const gt_question_t *question, int index)
{
	return bit_test(question->own, index) ||
	       (gt_weight(node_record_table_ptr[index]) <= question->heaviest &&
		may_use(question, index));
}

extern uint64_t gt_question_room(const gt_question_t *question, int index)
{
	gt_shares_t shares;

	if (!question->shares)
		return gt_node_free(index, question->gpus);
	return gt_node_shares(index, question->shares, &shares) ?
		gt_shares_fit(&shares, question->share_count) : 0;
}

static void write_job(gt_line_t *line, const gt_question_t *question)
{
	const job_record_t *job = question->test->job;
	gt_slice_t hint = gt_job_hint(job);

	gt_line_number(line, "job", job->job_id);
	gt_line_number(line, "array", job->array_job_id);
	gt_line_number(line, "uid", job->user_id);
	if (!job->batch_flag)
		gt_line_number(line, "interactive", 1);
	gt_line_text(line, "account", job->account, GT_NAME_MAX);
	gt_line_text(line, "partition",
		     job->part_ptr ? job->part_ptr->name : job->partition,
		     GT_NAME_MAX);
	gt_line_text(line, "type", question->gpus->type_name, GT_NAME_MAX);
	if (question->shares) {
		gt_line_text(line, "shared", question->shares->gres_name,
			     GT_NAME_MAX);
		gt_line_number(line, "shares", question->share_count);
	}
	if (hint.len)
		gt_line_text(line, "hint", hint.text,
			     MIN(hint.len, HINT_BYTES));
}

/*
 * RET what the engine is told to be free. Of a node with slices that is everything: it
 * knows which are of the job's type, and must see which GPUs are in use in part
 */
static uint64_t told_free(const gt_question_t *question, int index)
{
	return gt_node_free(index, gt_node_is_sliced(index) ? NULL :
			    question->gpus);
}

static void write_own(gt_line_t *line, const gt_question_t *question)
{
	node_record_t *node;

	for (int i = 0; (node = next_node_bitmap(question->own, &i)); i++) {
		gt_candidate_t candidate = {
			.name = node->name,
			.total = gt_node_total(i),
			.free = told_free(question, i),
			.own = gt_selected(question->gpus, i),
			.weight = node->config_ptr->weight,
		};

		if (question->shares)
			gt_shares_line_own(line, question->shares, i);
		else
			gt_line_candidate(line, &candidate);
	}
}

/*
 * RET true if what is told of the nodes that Slurm chose is all that is free there: none
 * has GPUs of a type that neither the job nor the engine knows
 */
static bool tells_all(const gt_question_t *question)
{
	for (int i = 0; next_node_bitmap(question->own, &i); i++)
		if (told_free(question, i) != gt_node_free(i, NULL))
			return false;
	return true;
}

/* RET true if the question may tell of nodes that Slurm did not choose */
static bool tells_others(const gt_question_t *question)
{
	/* several nodes of a job of shares stay Slurm's: nothing is told of the network */
	if (question->shares)
		return bit_set_count(question->own) == 1;
	return tells_all(question) &&
	       gt_cluster_is_known(question->own, question->offered);
}

/* What Slurm holds the choice of nodes to; it checks that again when it selects. */
static void write_topology(gt_line_t *line, const job_record_t *job)
{
	const char *topology = gt_weighed_topology();

	if (!topology || !*topology)
		return;
	gt_line_text(line, "topology", topology, GT_NAME_MAX);
	if (gt_plugin.topology_yaml)
		gt_line_text(line, "network", GT_TOPOLOGY_NAME(job),
			     GT_NAME_MAX);
	if (GT_SEGMENT(job))
		gt_line_number(line, "segment", GT_SEGMENT(job));
}

/* Adds the other nodes, if there are any and the engine knows all nodes. */
static void write_others(gt_line_t *line, gt_question_t *question)
{
	bool respected = gt_plugin.config.respect_weight;
	bool by_weight = gt_goes_by_weight(question->test->job, question->own);
	bitstr_t *others;

	question->heaviest = gt_highest_weight(question->own);
	if (!respected)
		question->heaviest |= UINT32_MAX;
	others = gt_other_nodes(question->test, question->offered,
				question->own, question->heaviest, by_weight);
	if (question->shares) {
		gt_shares_line_others(line, question->shares,
				      question->share_count, others,
				      question->asked);
	} else if (bit_ffs(others) >= 0) {
		write_topology(line, question->test->job);
		gt_cluster_write(line, others);
		if (respected && by_weight)
			gt_line_number(line, "heaviest", question->heaviest);
		bit_or(question->asked, others);
		question->told = true;
	}
	FREE_NULL_BITMAP(others);
}

extern bool gt_question_write(gt_question_t *question, gt_line_t *line,
			      uint64_t id, const gt_earlier_t *earlier)
{
	question->own = bit_copy(question->test->job->job_resrcs->node_bitmap);
	question->asked = bit_copy(question->own);
	gt_line_begin(line, "place");
	gt_line_number(line, "id", id);
	write_job(line, question);
	gt_line_number(line, "postponed", earlier->waiting.count);
	gt_line_number(line, "waited_s", earlier->waited_s);
	write_own(line, question);
	if (!gt_keeps_nodes(question->test) && tells_others(question))
		write_others(line, question);
	return gt_line_end(line);
}

extern void gt_question_free(gt_question_t *question)
{
	FREE_NULL_BITMAP(question->own);
	FREE_NULL_BITMAP(question->asked);
}
