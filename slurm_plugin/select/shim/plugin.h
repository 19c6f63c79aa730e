/* What the files of this plugin share while it is loaded in slurmctld. */
#pragma once

#include "kill_switch.h"
#include "mirror.h"
#include "rpc.h"
#include "settings.h"
#include "stats.h"
#include "stock.h"

typedef struct {
	bool active;		/* in slurmctld, with settings we could read */
	gt_config_t config;
	bool quiet;		/* by its last reply the engine keeps the notes */
	bool topology_yaml;	/* is there, and Slurm goes by it alone */
	gt_channel_t channel;
	gt_line_t line;
	gt_reply_t reply;
	gt_budget_t budget;
	gt_stats_t stats;
	gt_mirror_t mirror;
	const char *left;	/* why the last job that we could read was left to Slurm, or NULL */
} gt_plugin_t;

extern gt_plugin_t gt_plugin;

extern void gt_plugin_stop(void);
/*
 * slurmctld has read slurm.conf: reads our settings, too, and checks its records
 * anew. Called by node_init, because a changed partition calls reconfigure, too.
 */
extern void gt_plugin_read(void);

/*
 * Writes the counters to the log if they are due. Called when a job ends, and when
 * slurmctld saves its state: every few minutes, and once at its end.
 */
extern void gt_plugin_sum_up(void);

/*
 * The connection for questions and notices. A breaker that was thrown before the engine
 * took the table of nodes is lifted: the engine is there again.
 */
extern gt_channel_t *gt_plugin_channel(void);

/* RET true unless the settings, the kill switch or the self-check forbid it */
extern bool gt_plugin_may_act(void);

/* RET true if this job's record is what we take it for */
extern bool gt_plugin_may_read(const job_record_t *job);

/*
 * Counts the result of one job test; writes the counters to the log if they are due.
 * all_nodes: the answer is about all nodes that the job may use, not about Slurm's own
 * alone. own_us: as in stats.h
 */
extern void gt_plugin_count(uint32_t job_id, gt_result_t result, bool all_nodes,
			    int64_t added_us, int64_t own_us);

/*
 * Three calls in this order count GPU jobs that started although we were not called
 * for them. They go by the nodes' counts of GPUs in use: a job's record may be laid
 * out otherwise than we think.
 */
/* Slurm begins this job: its resources are taken next. */
extern void gt_unasked_begin(const job_record_t *job);
/*
 * RET GPUs in use in the whole cluster before this job's are taken; 0 if nobody needs
 * to know, because we were called for this job or have asked about others
 */
extern uint64_t gt_unasked_gpus(const job_record_t *job);
/* The job's resources were taken; `before` is what gt_unasked_gpus() returned. */
extern void gt_unasked_started(const job_record_t *job, uint64_t before);
