/* What the files of this plugin share while it is loaded in slurmctld. */
#pragma once

#include "compat.h"
#include "kill_switch.h"
#include "rpc.h"
#include "settings.h"
#include "stats.h"

typedef struct {
	bool active;		/* in slurmctld, with settings we could read */
	gt_config_t config;
	gt_channel_t channel;
	gt_line_t line;
	gt_reply_t reply;
	gt_budget_t budget;
	gt_stats_t stats;
	const job_record_t *considered;	/* last one that could be read */
} gt_plugin_t;

extern gt_plugin_t gt_plugin;

extern void gt_plugin_stop(void);
/*
 * slurmctld has read slurm.conf: so do we our settings, and check its records
 * anew. Not select_p_reconfigure(), which a changed partition calls, too.
 */
extern void gt_plugin_read(void);

/*
 * A job ended, or slurmctld saves its state: every few minutes, and when it
 * ends, for it does not unload its plugins. Counters that are due go to the log.
 */
extern void gt_plugin_sum_up(void);

/* RET true unless the settings, the kill switch or the self-check forbid it */
extern bool gt_plugin_may_act(void);

/* RET true if this job's record is what we take it for */
extern bool gt_plugin_may_read(const job_record_t *job);

/* Counts what came of one job test and tells the log when it is time. */
extern void gt_plugin_count(uint32_t job_id, gt_result_t result,
			    int64_t added_us);
