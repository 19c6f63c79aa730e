#include "unasked.h"

#include "gpus.h"
#include "layout.h"
#include "plugin.h"

/* One such start may be chance; so many are not. */
#define STARTS 10

static int starts;
static const job_record_t *begun;

/* Only before the first question: later the engine's own counters tell. */
static bool in_doubt(const job_record_t *job)
{
	/* a job that did not begin now was running before slurmctld started */
	return job == begun && gt_plugin.active && gt_plugin.considered != job &&
	       !gt_plugin.stats.asked && starts < STARTS &&
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
		error("gputopo: not asked: %d jobs with GPUs have started and none of them could be asked about; see `gputopo doctor`",
		      STARTS);
}
