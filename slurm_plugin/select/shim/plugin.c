#include "plugin.h"

#include "gpus.h"
#include "layout.h"
#include "sender.h"

gt_plugin_t gt_plugin;

static void log_stats(int64_t now_us)
{
	const gt_config_t *config = &gt_plugin.config;
	uint64_t tests = gt_plugin.stats.since_line;
	uint64_t out = gt_stats_out(&gt_plugin.stats);
	char text[700];

	if (out)
		error("gputopo: %"PRIu64" of the last %"PRIu64" jobs with GPUs were not asked about: we may take %u ms of slurmctld's time in %u s (pass_budget_ms, pass_window_s); is the engine slow? (gputopo status)",
		      out, tests, config->pass_budget_ms, config->pass_window_s);
	gt_stats_line(&gt_plugin.stats, now_us, text, sizeof(text));
	info("gputopo: stats %s notices_dropped=%"PRIu64, text,
	     gt_plugin.channel.notices_dropped);
}

/* From the sender's thread */
static void say(const char *text, gt_tone_t tone)
{
	if (tone == GT_SAY_TROUBLE)
		error("gputopo: %s", text);
	else if (tone == GT_SAY_NEWS)
		info("gputopo: %s", text);
	else
		verbose("gputopo: %s", text);
}

/* From the sender's thread, as Slurm itself does when a job has ended */
static void pass(void)
{
	schedule(false);
}

/* Under `defer` Slurm, too, leaves it to the next look at the queue. */
static gt_pass_t pass_of_slurm(void)
{
	if (!schedule || xstrcasestr(slurm_conf.sched_params, "defer"))
		return queue_job_scheduler;
	return pass;
}

extern void gt_plugin_stop(void)
{
	gt_sender_stop();
	gt_kill_switch_stop();
	gt_plugin.active = false;
	gt_channel_close(&gt_plugin.channel);
	gt_line_free(&gt_plugin.line);
}

extern void gt_plugin_sum_up(void)
{
	const gt_config_t *config = &gt_plugin.config;
	int64_t now_us = gt_now_us();

	if (!gt_plugin.active || !gt_plugin.stats.since_line)
		return;
	if ((&slurmctld_config && slurmctld_config.shutdown_time) ||
	    gt_stats_due(&gt_plugin.stats, 0,
			 config->stats_interval_s * 1000000LL, now_us))
		log_stats(now_us);
}

extern void gt_plugin_read(void)
{
	char wrong[400], beside[256];
	const char *path;

	gt_layout_forget();
	gt_channel_close(&gt_plugin.channel);
	if (!running_in_slurmctld())
		return;
	path = gt_config_find(slurm_conf.slurm_conf, beside, sizeof(beside));
	gt_plugin.active = gt_config_load(&gt_plugin.config, path, wrong,
					  sizeof(wrong));
	if (gt_plugin.active)
		verbose("gputopo: asking %s within %u ms",
			gt_plugin.config.socket, gt_plugin.config.deadline_ms);
	else
		error("gputopo: %s; every job keeps Slurm's own GPUs until this is fixed and slurmctld reconfigured",
		      wrong);
	if (gt_plugin.config.gone)
		info("gputopo: %s: %s has no effect any more; the line can go",
		     path, gt_plugin.config.gone);
	gt_kill_switch_watch(gt_plugin.config.kill_switch);
	if (gt_plugin.active &&
	    !gt_sender_start(&gt_plugin.mirror, &gt_plugin.config, say,
			     pass_of_slurm()))
		error("gputopo: no thread that sends the table of nodes: the engine is asked about Slurm's own nodes alone until slurmctld is reconfigured or started again");
	gt_plugin.topology_yaml = gt_topology_yaml();
}

extern gt_channel_t *gt_plugin_channel(void)
{
	static uint64_t seen;
	uint64_t taken = gt_mirror_taken(&gt_plugin.mirror);

	if (seen != taken)
		gt_plugin.channel.breaker_until_us = 0;
	seen = taken;
	return &gt_plugin.channel;
}

extern bool gt_plugin_may_act(void)
{
	return gt_plugin.active && !gt_kill_switch_thrown() &&
	       gt_layout_known();
}

extern bool gt_plugin_may_read(const job_record_t *job)
{
	return gt_plugin.active && gt_layout_job(job);
}

extern void gt_plugin_count(uint32_t job_id, gt_result_t result, bool all_nodes,
			    int64_t added_us, int64_t own_us)
{
	const gt_config_t *config = &gt_plugin.config;
	int64_t now_us = gt_now_us();

	gt_stats_add(&gt_plugin.stats, result, added_us, own_us);
	verbose("gputopo: job=%u added_us=%d result=%s nodes=%s", job_id,
		(int) added_us, gt_result_name(result),
		all_nodes ? "all" : "own");
	if (gt_stats_due(&gt_plugin.stats, config->stats_every_starts,
			 config->stats_interval_s * 1000000LL, now_us))
		log_stats(now_us);
}

/* --------------------------------------------------- starts without a question */

/* One such start may be chance, but not so many. */
#define STARTS 10

static int starts;
static const job_record_t *begun;

/* Only before the first question: after it the engine's own counters show this. */
static bool in_doubt(const job_record_t *job)
{
	/* a job that did not begin now was running before slurmctld started */
	return job == begun && gt_plugin.active && !gt_plugin.stats.asked && starts < STARTS &&
	       !gt_kill_switch_thrown() && gt_layout_nodes();
}

extern void gt_unasked_begin(const job_record_t *job)
{
	begun = job;
}

extern uint64_t gt_unasked_gpus(const job_record_t *job)
{
	gres_node_state_t *gpus;
	uint64_t used = 0;

	if (!in_doubt(job))
		return 0;
	for (int i = 0; i < node_record_count; i++)
		if ((gpus = gt_node_gpus(i)))
			used += gpus->gres_cnt_alloc;
	return used;
}

extern void gt_unasked_started(const job_record_t *job, uint64_t before)
{
	if (gt_unasked_gpus(job) > before && ++starts == STARTS)
		error("gputopo: not asked: %d jobs with GPUs have started and none of them could be asked about (the last one: %s); see `gputopo doctor`",
		      STARTS, gt_plugin.left ? gt_plugin.left :
		      "the plugin was not called for it");
}
