/*
 * Tests of the select plugin with Slurm's own structures: what a job's record holds
 * after a selection that cons_tres broke off, which no live test can make it do.
 * The functions defined here stand in for cons_tres, the engine and the nodes.
 */
#include "../claims.h"
#include "advise.h"
#include "before.h"
#include "job_events.h"
#include "masked.h"
#include "plugin.h"
#include "question.h"
#include "shares.h"

/* ------------------------------------------------------------- stand-ins */

static node_record_t dgx1 = { .magic = NODE_MAGIC, .name = "dgx1" };
static node_record_t *nodes[] = { &dgx1 };
static gres_job_state_t request;
static bool may_act;
static int masked, refusals;	/* masked selections; how many to refuse */
static uint32_t cpus;	/* that the first one takes */

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
extern int gt_mask_select(const gt_test_t *test, gres_job_state_t *gpus,
			  const gt_place_t *places, int count)
{
	if (masked++ >= refusals) {
		test->job->total_cpus = masked == 1 ? cpus : 0;
		choose(places[0].gpus);
		return SLURM_SUCCESS;
	}
	test->job->priority = 0;
	test->job->state_reason = WAIT_HELD;
	choose(0);
	return SLURM_ERROR;
}

extern bool gt_question_write(gt_question_t *question, gt_line_t *line,
			      uint64_t id, const gt_earlier_t *earlier)
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
	cpus = 16;	/* more than Slurm's own choice has */
	CHECK(test_job(0, true) == SLURM_SUCCESS && came_of_it(GT_ALT));
	cpus = 0;
}

/* What a selection changes is put back, or known to stay: anything else is said in the log. */
CLAIM(a_field_that_nobody_puts_back_is_seen)
{
	gt_before_t before;

	test_job(0, true);
	gt_before_keep(&before, &job);
	job.priority = 0;
	job.wait4switch_start = 1;
	details.pn_min_memory = 5;
	CHECK(gt_before_check(&before, &job));
	gt_before_put_back(&before, &job);
	CHECK(job.priority == 77 && details.pn_min_memory == 0);
	details.max_cpus = 3;
	CHECK(!gt_before_check(&before, &job));
	details.max_cpus = 0;
}

CLAIM(a_choice_that_did_not_begin_is_forgotten)
{
	CHECK(test_job(0, true) == SLURM_SUCCESS && came_of_it(GT_USED));
	/* Slurm did not start it; now it does, and we were not asked */
	CHECK(test_job(0, false) == SLURM_SUCCESS);
	gt_job_begins(&job);
	CHECK(!xstrcmp(job.admin_comment, "[gpu-topo: h]"));
}

/* ------------------------------------------------- shards and MPS of a node */

#define GPUS 4

static bitstr_t *gpu_bitmaps[GPUS];
static uint64_t share_total[GPUS], share_used[GPUS];
static gres_node_state_t gpu_record, share_record;
static gres_state_t gpu_entry = { .gres_name = "gpu", .gres_data = &gpu_record };
static gres_state_t share_entry = { .gres_name = "shard", .gres_data = &share_record };
static gres_job_state_t share_request;
static gres_state_t asks = { .gres_name = "shard", .gres_data = &share_request };

/* dgx1 with four GPUs of four shards each, of which these are in use */
static void share_out(uint64_t gpu0, uint64_t gpu1, uint64_t gpu2, uint64_t gpu3)
{
	uint64_t used[GPUS] = { gpu0, gpu1, gpu2, gpu3 };

	FREE_NULL_BITMAP(gpu_record.gres_bit_alloc);
	FREE_NULL_BITMAP(share_record.gres_bit_alloc);
	FREE_NULL_LIST(dgx1.gres_list);
	gpu_record = (gres_node_state_t) {
		.gres_bit_alloc = bit_alloc(GPUS), .gres_cnt_avail = GPUS,
	};
	share_record = (gres_node_state_t) {
		.gres_bit_alloc = bit_alloc(GPUS), .topo_cnt = GPUS,
		.topo_gres_bitmap = gpu_bitmaps, .topo_gres_cnt_avail = share_total,
		.topo_gres_cnt_alloc = share_used,
	};
	for (int i = 0; i < GPUS; i++) {
		FREE_NULL_BITMAP(gpu_bitmaps[i]);
		gpu_bitmaps[i] = bit_alloc(GPUS);
		bit_set(gpu_bitmaps[i], i);
		share_total[i] = 4;
		share_used[i] = used[i];
		share_record.gres_cnt_alloc += used[i];
		if (used[i])
			bit_set(share_record.gres_bit_alloc, i);
	}
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(22, 11, 0)
	gpu_record.alt_gres_ns = &share_record;
#else
	gpu_record.alt_gres = &share_entry;
#endif
	share_entry.config_flags = 0;
	dgx1.gres_list = list_create(NULL);
	list_append(dgx1.gres_list, &gpu_entry);
	list_append(dgx1.gres_list, &share_entry);
}

CLAIM(a_gpu_that_a_job_has_whole_has_no_shares_left)
{
	gt_shares_t shares;

	share_out(3, 0, 4, 0);
	bit_set(gpu_record.gres_bit_alloc, 3);
	gpu_record.gres_cnt_alloc = 1;
	CHECK(gt_node_shares(0, &asks, &shares));
	CHECK(shares.total == GPUS && shares.left[0] == 1 && shares.left[1] == 4);
	CHECK(shares.left[2] == 0 && shares.left[3] == 0);
	CHECK(gt_shares_fit(&shares, 1) == 0x3 && gt_shares_fit(&shares, 2) == 0x2);
}

CLAIM(where_one_gpu_alone_may_be_shared_it_is_the_one_in_use)
{
	gt_shares_t shares;

	share_out(0, 1, 0, 0);
	share_entry.config_flags = GRES_CONF_ONE_SHARING;
	CHECK(gt_node_shares(0, &asks, &shares));
	CHECK(gt_shares_fit(&shares, 1) == 0x2);
	share_out(0, 0, 0, 0);
	share_entry.config_flags = GRES_CONF_ONE_SHARING;
	CHECK(gt_node_shares(0, &asks, &shares));
	CHECK(gt_shares_fit(&shares, 1) == 0xf);
}

CLAIM(shares_that_are_not_counted_gpu_by_gpu_are_slurms)
{
	gt_shares_t shares;

	share_out(0, 0, 0, 0);
	bit_set(gpu_bitmaps[0], 1);
	CHECK(!gt_node_shares(0, &asks, &shares));
	share_out(0, 0, 0, 0);
	share_record.topo_cnt = 1;
	CHECK(!gt_node_shares(0, &asks, &shares));
	share_out(5, 0, 0, 0);
	CHECK(!gt_node_shares(0, &asks, &shares));
	share_out(0, 0, 0, 0);
	asks.gres_name = "mps";
	CHECK(!gt_node_shares(0, &asks, &shares));
	asks.gres_name = "shard";
	CHECK(gt_node_shares(0, &asks, &shares));
}

#define MANY 20

/* A list of GPUs, and of the shares of them that the entry counts */
static void gpu_of_begun(list_t *gres, gres_state_t *shares)
{
	static gres_node_state_t gpus;
	static gres_state_t entry = { .gres_name = "gpu", .gres_data = &gpus };

	gpus = gpu_record;
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(22, 11, 0)
	gpus.alt_gres_ns = shares->gres_data;
#else
	gpus.alt_gres = shares;
#endif
	list_append(gres, &entry);
	list_append(gres, shares);
}

/* Bits of the nodes that a question about so many shares tells, of MANY that are idle but one */
static uint64_t told_of(uint64_t count, const uint32_t *weights, int begun)
{
	static node_record_t many[MANY];
	static config_record_t configs[MANY];
	static uint64_t used[GPUS] = { 1, 0, 0, 0 };
	node_record_t *table[MANY];
	gres_node_state_t in_use;
	gres_state_t entry = share_entry;
	bitstr_t *all = bit_alloc(MANY), *told = bit_alloc(MANY);
	gt_line_t line = { 0 };
	uint64_t mask = 0;

	share_out(0, 0, 0, 0);
	in_use = share_record;
	in_use.gres_bit_alloc = bit_alloc(GPUS);
	bit_set(in_use.gres_bit_alloc, 0);
	in_use.topo_gres_cnt_alloc = used;
	in_use.gres_cnt_alloc = 1;
	entry.gres_data = &in_use;
	for (int i = 0; i < MANY; i++) {
		configs[i].weight = weights ? weights[i] : 1;
		many[i] = dgx1;
		many[i].config_ptr = &configs[i];
		table[i] = &many[i];
		bit_set(all, i);
	}
	node_record_table_ptr = table;
	node_record_count = MANY;
	many[begun].gres_list = list_create(NULL);
	gpu_of_begun(many[begun].gres_list, &entry);
	gt_line_begin(&line, "place");
	gt_shares_line_others(&line, &asks, count, all, told);
	for (int i = 0; i < MANY; i++)
		if (bit_test(told, i))
			mask |= 1ULL << i;
	gt_line_free(&line);
	FREE_NULL_LIST(many[begun].gres_list);
	FREE_NULL_BITMAP(in_use.gres_bit_alloc);
	FREE_NULL_BITMAP(all);
	FREE_NULL_BITMAP(told);
	node_record_table_ptr = nodes;
	node_record_count = 1;
	return mask;
}

CLAIM(of_many_nodes_those_are_told_that_the_engine_would_take_first)
{
	uint32_t weights[MANY];

	/* the last one alone has a shared GPU, with room for three */
	CHECK(told_of(3, NULL, MANY - 1) == (0x7fff | 1ULL << (MANY - 1)));
	/* four begin a GPU: on a node in use, as it is, before any other */
	CHECK(told_of(4, NULL, MANY - 1) == (0x7fff | 1ULL << (MANY - 1)));
	for (int i = 0; i < MANY; i++)
		weights[i] = MANY - i;
	/* weight comes before what is shared */
	CHECK(told_of(3, weights, 0) == 0xffff0);
}

CLAIM(a_job_has_one_request_for_gpus_or_shares_or_none_that_is_ours)
{
	job = (job_record_t) { .gres_list_req = list_create(NULL) };
	CHECK(!gt_job_request(&job));
	list_append(job.gres_list_req, &asks);
	CHECK(gt_job_request(&job) == &asks);
	list_append(job.gres_list_req, &gpu_entry);
	CHECK(!gt_job_request(&job));
	FREE_NULL_LIST(job.gres_list_req);
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
