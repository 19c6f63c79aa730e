#include "advise.h"

#include "before.h"
#include "cluster.h"
#include "cores.h"
#include "gpus.h"
#include "job_events.h"
#include "layout.h"
#include "masked.h"
#include "plugin.h"
#include "postpone.h"
#include "question.h"
#include "shares.h"

/* One decision in progress */
typedef struct {
	gt_question_t question;
	gt_earlier_t earlier;
	gt_before_t before;
	int rc;			/* the answer for Slurm */
	gt_cpus_t own_cpus;	/* of Slurm's own choice */
	bool reselect;		/* Slurm's own choice was overwritten */
} decision_t;

/*
 * RET how long one answer may take, or 0 if the budget has no time left for a full
 * deadline: a shorter one would count as a failure of the engine, and a full one
 * would overdraw the budget.
 */
static int64_t answer_limit_us(int64_t now_us)
{
	const gt_config_t *config = &gt_plugin.config;
	int64_t budget_us = config->pass_budget_ms * 1000LL;
	int64_t limit_us = config->deadline_ms * 1000LL;
	int64_t left_us = gt_budget_left(&gt_plugin.budget, now_us, budget_us,
					 config->pass_window_s * 1000000LL);

	if (limit_us > budget_us)
		limit_us = budget_us;
	return left_us >= limit_us ? limit_us : 0;
}

/* ----------------------------------------------------------------- asking */

/* RET GT_ANSWERED with the answer in gt_plugin.reply, or why there is none */
static gt_result_t ask(decision_t *decision, int64_t limit_us)
{
	gt_channel_t *channel = gt_plugin_channel();
	uint64_t id = ++channel->last_id;
	bool was_failing = channel->failing;
	gt_result_t result;

	if (gt_now_us() < channel->breaker_until_us)
		return GT_BREAKER;
	if (!gt_question_write(&decision->question, &gt_plugin.line, id,
			       &decision->earlier))
		return GT_NOT_OURS;
	result = gt_channel_ask(channel, &gt_plugin.config, &gt_plugin.line,
				id, limit_us, &gt_plugin.reply);
	if (result == GT_ANSWERED) {
		if (decision->question.told &&
		    gt_plugin.reply.kind < GT_REPLY_ERROR)
			gt_mirror_answered(&gt_plugin.mirror,
					   gt_plugin.reply.resync);
		if (was_failing)
			info("gputopo: the engine answers again");
	} else if (gt_channel_should_log(channel)) {
		error("gputopo: engine: %s; Slurm's own choice, not asked again for %u s",
		      channel->wrong,
		      gt_now_us() < channel->breaker_until_us ?
		      gt_plugin.config.breaker_s : 0);
	}
	return result;
}

/* ---------------------------------------------------------------- obeying */

/* RET how many GPUs Slurm chose; to be called before a second selection undoes that */
static int own_count(const gt_question_t *question)
{
	int count = 0;

	for (int i = 0; next_node_bitmap(question->own, &i); i++)
		count += __builtin_popcountll(gt_selected(question->gpus, i));
	return count;
}

/*
 * Turns names into nodes. RET NULL, or what makes the advice impossible: it must
 * name nodes of the question, each once, and free GPUs, as many of both as the job
 * has. *allowed becomes false for a node that the job may not use, which the question
 * could not tell.
 */
static const char *read_places(const gt_question_t *question, int wanted,
			       const gt_pick_t *picks, size_t count,
			       gt_place_t *places, bool *allowed)
{
	bitstr_t *left;
	int given = 0;
	const char *wrong = NULL;

	if ((int) count != bit_set_count(question->own))
		return "another number of nodes";
	left = bit_copy(question->asked);
	for (size_t i = 0; i < count && !wrong; i++) {
		node_record_t *node = find_node_record(picks[i].name);

		if (!node || !bit_test(left, node->index)) {
			wrong = "a node that was not asked about, or twice";
			break;
		}
		bit_clear(left, node->index);
		if (!gt_question_allows(question, node->index))
			*allowed = false;
		else if (picks[i].mask &
			 ~gt_question_room(question, node->index))
			wrong = "GPUs that are not free";
		given += __builtin_popcountll(picks[i].mask);
		places[i] = (gt_place_t) { node->index, picks[i].mask };
	}
	FREE_NULL_BITMAP(left);
	if (!wrong && given != wanted)
		wrong = "another number of GPUs";
	return wrong;
}

static bool is_own_choice(const gt_question_t *question,
			  const gt_place_t *places, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!bit_test(question->own, places[i].index) ||
		    gt_selected(question->gpus, places[i].index) !=
		    places[i].gpus)
			return false;
	return true;
}

/* RET GT_USED if the job has the picked GPUs now */
static gt_result_t take(decision_t *decision, int wanted,
			const gt_pick_t *picks, size_t count)
{
	const gt_question_t *question = &decision->question;
	job_record_t *job = question->test->job;
	gt_place_t *places = xcalloc(count, sizeof(*places));
	bool allowed = true;
	const char *wrong = read_places(question, wanted, picks, count,
					places, &allowed);
	gt_result_t result = GT_INFEASIBLE;

	if (wrong) {
		error("gputopo: %pJ: advice with %s, ignored", job, wrong);
		result = GT_BAD_ADVICE;
		/* it may come of what the engine takes to be free: it is told anew */
		if (question->told)
			gt_mirror_answered(&gt_plugin.mirror, true);
	} else if (!allowed) {
		verbose("gputopo: %pJ: advice with a node of higher weight, or whose GPUs are reserved or not chosen one by one",
			job);
	} else if (!decision->reselect &&
		   is_own_choice(question, places, count)) {
		for (size_t i = 0; i < count; i++)
			gt_choose_bits(question->gpus, &places[i]);
		result = GT_USED;
	} else {
		gt_before_put_back(&decision->before, job);
		decision->reselect = true;
		if (gt_mask_select(question->test, question->gpus, places,
				   (int) count) == SLURM_SUCCESS &&
		    !gt_has_other_cpus(job, &decision->own_cpus, question->own)) {
			decision->reselect = false;
			result = GT_USED;
		}
	}
	xfree(places);
	return result;
}

static gt_result_t use(decision_t *decision)
{
	const gt_reply_t *reply = &gt_plugin.reply;
	int wanted = own_count(&decision->question);
	gt_result_t result;

	decision->own_cpus = gt_cpus_of(decision->question.test->job);
	result = take(decision, wanted, reply->picks, reply->pick_count);
	if (result != GT_INFEASIBLE)
		return result;
	if (reply->alt_count &&
	    take(decision, wanted, reply->alts, reply->alt_count) == GT_USED)
		return GT_ALT;
	info("gputopo: %pJ: advice not feasible, Slurm's own choice",
	     decision->question.test->job);
	return GT_INFEASIBLE;
}

static void leave_pending(decision_t *decision)
{
	const gt_test_t *test = decision->question.test;

	free_job_resources(&test->job->job_resrcs);
	gt_before_put_back(&decision->before, test->job);
	bit_copybits(test->nodes, decision->question.offered);
	decision->rc = GT_POSTPONED;
}

static gt_result_t obey(decision_t *decision)
{
	gt_plugin.quiet = gt_plugin.reply.quiet;
	switch (gt_plugin.reply.kind) {
	case GT_REPLY_USE:
		return use(decision);
	case GT_REPLY_WAIT:
		if (!gt_postpone(decision->question.test->job,
				 &decision->earlier, &gt_plugin.reply))
			return GT_CAPPED;
		leave_pending(decision);
		return GT_WAIT;
	case GT_REPLY_PASS:
		return GT_PASS;
	default:
		return GT_GARBAGE;
	}
}

/* ---------------------------------------------------------------- deciding */

/* The advice could not be followed: cons_tres selects once more, as without us. */
static void select_unmasked(decision_t *decision)
{
	const gt_test_t *test = decision->question.test;

	gt_before_put_back(&decision->before, test->job);
	free_job_resources(&test->job->job_resrcs);
	gt_forget_bits(test->job);
	bit_copybits(test->nodes, decision->question.offered);
	decision->rc = gt_stock_job_test(test);
	decision->reselect = false;
}

/* `start_us`: since when this takes Slurm's time */
static void decide(decision_t *decision, int64_t start_us)
{
	job_record_t *job = decision->question.test->job;
	int64_t limit_us = answer_limit_us(gt_now_us());
	int64_t added_us;
	int64_t others_us = gt_plugin.channel.waited_us + gt_stock.spent_us;
	gt_result_t result = GT_BUDGET_OUT;
	bool all_nodes;

	gt_plugin.reply.note[0] = '\0';
	if (limit_us)
		result = ask(decision, limit_us);
	all_nodes = result == GT_ANSWERED && decision->question.told &&
		    !gt_plugin.reply.resync;
	if (result == GT_ANSWERED)
		result = obey(decision);
	else if (!limit_us && gt_postpone_go_on(job, &decision->earlier))
		leave_pending(decision);
	if (decision->reselect)
		select_unmasked(decision);
	if (decision->rc == SLURM_SUCCESS)
		gt_job_chosen(job, result, gt_plugin.reply.note);
	added_us = gt_now_us() - start_us;
	others_us = gt_plugin.channel.waited_us + gt_stock.spent_us - others_us;
	/* a machine that stood still makes no debt of minutes */
	gt_plugin.budget.spent_us += MIN(added_us,
					 gt_plugin.config.pass_budget_ms * 1000LL);
	gt_plugin_count(job->job_id, result, all_nodes, added_us,
			added_us - others_us);
}

extern int gt_advise_job_test(const gt_test_t *test)
{
	decision_t decision = { .question.test = test };
	gres_state_t *request = NULL;
	int64_t start_us;

	gt_job_forget_chosen();
	/* whatever the self-check says by now: it had passed when there was anything to forget */
	if (test->mode == SELECT_MODE_RUN_NOW)
		gt_forget_bits(test->job);
	if (test->mode == SELECT_MODE_RUN_NOW && gt_layout_job(test->job))
		gt_postpone_settle(test->job, &decision.earlier);
	if (gt_plugin_may_act()) {
		/*
		 * It was put off in this very pass, which comes to it again for its next
		 * partition, QOS or feature: there it would lose what it was put off for
		 */
		if (decision.earlier.asleep) {
			gt_postpone_sleep_on(test->job, &decision.earlier);
			return GT_POSTPONED;
		}
		request = gt_request_gpus(test);
	}
	if (!request)
		return gt_stock_job_test(test);
	decision.question.gpus = request->gres_data;
	if (gt_is_shares(request, NULL))
		decision.question.shares = request;
	decision.question.offered = bit_copy(test->nodes);
	gt_before_keep(&decision.before, test->job);
	decision.rc = gt_stock_job_test(test);
	start_us = gt_now_us();
	if (decision.rc != SLURM_SUCCESS)
		gt_postpone_sleep_on(test->job, &decision.earlier);
	else if (gt_request_is_open(&decision.question)) {
		gt_before_check(&decision.before, test->job);
		decide(&decision, start_us);
	}
	gt_question_free(&decision.question);
	FREE_NULL_BITMAP(decision.question.offered);
	return decision.rc;
}
