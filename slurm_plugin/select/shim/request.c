#include "request.h"

#include "gpus.h"
#include "layout.h"
#include "plugin.h"

/* "[a*2&b]" and the like: Slurm selects such a job in several calls. */
static bool counts_features(const job_record_t *job)
{
	return job->details->features &&
	       strpbrk(job->details->features, "[*");
}

/* GRES of any kind: mps and shards are parts of GPUs. */
static int is_reserved(void *item, void *key)
{
	const gres_job_state_t *gres = ((gres_state_t *) item)->gres_data;
	int index = *(int *) key;

	return index < (int) gres->node_cnt && gres->gres_cnt_node_alloc &&
	       gres->gres_cnt_node_alloc[index];
}

extern gres_job_state_t *gt_request_gpus(const gt_test_t *test)
{
	const job_record_t *job = test->job;

	if (test->mode != SELECT_MODE_RUN_NOW || !gt_layout_job(job))
		return NULL;
	gt_plugin.considered = job;
	if (!job->job_id || counts_features(job) ||
	    (job->details->whole_node & WHOLE_NODE_REQUIRED) ||
	    GT_INSIDE_GRES(test) ||
	    (job->resv_ptr && GT_RESERVATION_GRES(job->resv_ptr)))
		return NULL;
	return gt_job_gpus(job);
}

extern bool gt_request_may_use(const gt_test_t *test, int index)
{
	list_t *reserved = GT_RESERVED_GRES(test);

	return gt_node_is_plain(index) &&
	       !(reserved && list_find_first(reserved, is_reserved, &index));
}

static bool preempts(const gt_test_t *test)
{
	return test->preemptee_job_list && *test->preemptee_job_list &&
	       list_count(*test->preemptee_job_list);
}

extern bool gt_request_is_open(const gt_test_t *test,
			       const gres_job_state_t *gpus)
{
	const job_record_t *job = test->job;

	if (preempts(test) || !job->job_resrcs ||
	    !gt_layout_selection(job, gpus) ||
	    !job->job_resrcs->node_bitmap ||
	    (job->details->whole_node & WHOLE_NODE_REQUIRED))
		return false;
	for (int i = 0; next_node_bitmap(job->job_resrcs->node_bitmap, &i); i++)
		if (!gt_request_may_use(test, i) || !gt_selected(gpus, i))
			return false;
	return true;
}

/* A network topology that Slurm weighs itself when it chooses nodes */
static bool has_network_topology(void)
{
	const char *plugin = slurm_conf.topology_plugin;

	return plugin && xstrcmp(plugin, "topology/default") &&
	       xstrcmp(plugin, "topology/flat") &&
	       xstrcmp(plugin, "topology/none");
}

static bool least_loaded(const job_record_t *job)
{
	return (slurm_conf.select_type_param & GT_LEAST_LOADED) ||
	       (job->part_ptr && (job->part_ptr->flags & PART_FLAG_LLN));
}

extern bool gt_request_keeps_nodes(const gt_test_t *test)
{
	const job_record_t *job = test->job;

	return !gt_plugin.config.other_nodes || has_network_topology() ||
	       least_loaded(job) || job->req_switch ||
	       (job->bit_flags & SPREAD_JOB) || job->details->contiguous ||
	       (job->details->req_node_bitmap &&
		bit_ffs(job->details->req_node_bitmap) >= 0);
}
