/*
 * Tests of the select plugin with Slurm's own structures: what a job's record holds
 * after a selection that cons_tres broke off, which no live test can make it do.
 * The functions defined here stand in for cons_tres, the engine and the nodes.
 */
#include "../claims.h"
#include "gpus.h"
#include "plugin.h"
#include "question.h"

/* ------------------------------------------------------------- stand-ins */

static node_record_t dgx1 = { .magic = NODE_MAGIC, .name = "dgx1" };
static node_record_t *nodes[] = { &dgx1 };
static gres_job_state_t request;
static bool may_act;
static int masked, refusals;	/* masked selections; how many to refuse */

static void choose(uint64_t gpus)
{
	for (int i = 0; i < 8; i++)
		if (gpus >> i & 1)
			bit_set(request.gres_bit_select[0], i);
		else
			bit_clear(request.gres_bit_select[0], i);
}

extern int gt_stock_job_test(const gt_test_t *test)
{
	test->job->job_resrcs = create_job_resources();
	test->job->job_resrcs->node_bitmap = bit_copy(test->nodes);
	choose(0x3);
	return SLURM_SUCCESS;
}

/* "sync loop not progressing, holding" the job, with no GPU chosen any more */
extern int gt_mask_select(const gt_test_t *test, const gres_job_state_t *gpus,
			  const gt_place_t *places, int count)
{
	if (masked++ >= refusals) {
		choose(places[0].gpus);
		return SLURM_SUCCESS;
	}
	test->job->priority = 0;
	test->job->state_reason = WAIT_HELD;
	choose(0);
	return SLURM_ERROR;
}

extern bool gt_question_write(gt_question_t *question, gt_line_t *line,
			      uint64_t id, const gt_postponement_t *earlier)
{
	question->own = bit_copy(question->offered);
	question->asked = bit_copy(question->offered);
	return true;
}

extern gt_result_t gt_channel_ask(gt_channel_t *channel,
			       const gt_config_t *config,
			       const gt_line_t *line, uint64_t id,
			       int64_t limit_us, gt_reply_t *reply)
{
	reply->kind = GT_REPLY_USE;
	snprintf(reply->note, sizeof(reply->note), "by preference");
	reply->pick_count = reply->alt_count = 1;
	reply->picks[0] = (gt_pick_t) { "dgx1", 0x30 };
	reply->alts[0] = (gt_pick_t) { "dgx1", 0xc0 };
	return GT_ANSWERED;
}

extern node_record_t *find_node_record(char *name)
{
	return !xstrcmp(name, "dgx1") ? &dgx1 : NULL;
}

extern uint64_t gt_selected(const gres_job_state_t *gpus, int index)
{
	uint64_t mask = 0;

	for (int i = 0; i < 8; i++)
		if (bit_test(gpus->gres_bit_select[index], i))
			mask |= 1 << i;
	return mask;
}

extern uint64_t gt_question_room(const gt_question_t *question, int index)
{
	return 0xff;
}

extern gres_state_t *gt_request_gpus(const gt_test_t *test)
{
	static gres_state_t gpus = { .gres_name = "gpu", .gres_data = &request };

	return &gpus;
}

extern bool gt_request_is_open(gt_question_t *question)
{
	return true;
}

extern bool gt_plugin_may_act(void)
{
	return may_act;
}

extern bool gt_layout_known(void)
{
	return false;
}

/* --------------------------------------------------------------- the claims */

static __typeof__(*((job_record_t *) NULL)->details) details = {
	.magic = DETAILS_MAGIC,
};
static job_record_t job;

/* A job with priority 77 that Slurm would start on GPUs 0 and 1 of dgx1 */
static int test_job(int refused, bool act)
{
	gt_test_t test = { .job = &job, .mode = SELECT_MODE_RUN_NOW };
	int rc;

	xfree(job.admin_comment);
	job = (job_record_t) {
		.magic = JOB_MAGIC,
		.job_id = 1,
		.details = &details,
		.priority = 77,
		.state_reason = WAIT_RESOURCES,
		.admin_comment = xstrdup("[gpu-topo: h]"),
	};
	memset(&gt_plugin.stats, 0, sizeof(gt_plugin.stats));
	may_act = act;
	masked = 0;
	refusals = refused;
	test.nodes = bit_alloc(1);
	bit_set(test.nodes, 0);
	rc = gt_advise_job_test(&test);
	free_job_resources(&job.job_resrcs);
	FREE_NULL_BITMAP(test.nodes);
	return rc;
}

/* RET true if the last job test, and no other, is counted with this result */
static bool came_of_it(gt_result_t result)
{
	return gt_plugin.stats.asked == 1 && gt_plugin.stats.count[result] == 1;
}

CLAIM(a_job_that_a_refused_advice_held_starts_with_its_priority)
{
	CHECK(test_job(2, true) == SLURM_SUCCESS);
	CHECK(job.priority == 77);
	CHECK(job.state_reason == WAIT_RESOURCES);
	CHECK(masked == 2 && came_of_it(GT_INFEASIBLE));
}

/* Slurm's own GPUs are counted before a second selection undoes its choice. */
CLAIM(an_alternative_starts_from_the_same_record)
{
	CHECK(test_job(1, true) == SLURM_SUCCESS);
	CHECK(masked == 2 && came_of_it(GT_ALT));
	CHECK(job.priority == 77);
	CHECK(gt_selected(&request, 0) == 0xc0);
}

CLAIM(a_choice_that_did_not_begin_is_forgotten)
{
	CHECK(test_job(0, true) == SLURM_SUCCESS && came_of_it(GT_USED));
	/* Slurm did not start it; now it does, and we were not asked */
	CHECK(test_job(0, false) == SLURM_SUCCESS);
	gt_notice_begin(&job);
	CHECK(!xstrcmp(job.admin_comment, "[gpu-topo: h]"));
}

int main(void)
{
	node_record_count = 1;
	node_record_table_ptr = nodes;
	request.total_node_cnt = 1;
	request.gres_bit_select = xcalloc(1, sizeof(bitstr_t *));
	request.gres_bit_select[0] = bit_alloc(8);
	gt_plugin.active = true;
	gt_config_defaults(&gt_plugin.config);
	return run_claims(NULL);
}
