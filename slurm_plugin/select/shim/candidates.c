#include "candidates.h"

#include "plugin.h"

extern const char *gt_weighed_topology(void)
{
	const char *plugin = slurm_conf.topology_plugin;

	if (gt_plugin.topology_yaml)
		return "yaml";
	if (!plugin || !xstrcmp(plugin, "topology/default") ||
	    !xstrcmp(plugin, "topology/flat") ||
	    !xstrcmp(plugin, "topology/none"))
		return "";
	if (!xstrcmp(plugin, "topology/block"))
		return "block";
	if (!xstrcmp(plugin, "topology/tree") &&
	    !xstrcasestr(slurm_conf.topology_param, "dragonfly"))
		return "tree";
	return NULL;
}

static bool least_loaded(const job_record_t *job)
{
	return (slurm_conf.select_type_param & GT_LEAST_LOADED) ||
	       (job->part_ptr && (job->part_ptr->flags & PART_FLAG_LLN));
}

extern bool gt_keeps_nodes(const gt_test_t *test)
{
	const job_record_t *job = test->job;
	const char *topology = gt_weighed_topology();

	/*
	 * Backfill has planned nodes of its own for each part of a
	 * heterogeneous job. On another one a part may take what the next one
	 * needs, and then Slurm puts off the whole job for two minutes. One
	 * of --time-min gets as long as its own nodes have until what is
	 * planned next there, and on others perhaps less.
	 */
	return !gt_plugin.config.other_nodes || !topology || job->het_job_id ||
	       job->time_min || (job->req_switch && !*topology) || GT_WHOLE_TOPOLOGY(job) ||
	       GT_PLACES_SEGMENTS(job) || least_loaded(job) ||
	       (job->bit_flags & SPREAD_JOB) || job->details->contiguous ||
	       (job->details->req_node_bitmap &&
		bit_ffs(job->details->req_node_bitmap) >= 0);
}

extern uint64_t gt_weight(const node_record_t *node)
{
	return node->sched_weight >> 8;
}

extern uint64_t gt_highest_weight(bitstr_t *nodes)
{
	uint64_t highest = 0;
	node_record_t *node;

	for (int i = 0; (node = next_node_bitmap(nodes, &i)); i++)
		if (gt_weight(node) > highest)
			highest = gt_weight(node);
	return highest;
}

extern bool gt_goes_by_weight(const job_record_t *job, bitstr_t *own)
{
	node_record_t *node;

	if ((job->details->features && slurm_conf.node_features_plugins) ||
	    (job->resv_ptr && (job->resv_ptr->flags & RESERVE_FLAG_FLEX)))
		return false;
	for (int i = 0; (node = next_node_bitmap(own, &i)); i++)
		if (gt_weight(node) != node->config_ptr->weight)
			return false;
	return true;
}

/* Leaves out what is heavier; looks at every node. */
static void keep_light(uint64_t heaviest, bitstr_t *nodes)
{
	node_record_t *node;

	for (int i = 0; (node = next_node_bitmap(nodes, &i)); i++)
		if (gt_weight(node) > heaviest)
			bit_clear(nodes, i);
}

/* Leaves out nodes with GRES that are kept for others. For list_for_each() */
static int leave_out_reserved(void *item, void *arg)
{
	const gres_job_state_t *gres = ((gres_state_t *) item)->gres_data;
	bitstr_t *nodes = arg;

	for (int i = 0; gres->gres_cnt_node_alloc && i < (int) gres->node_cnt &&
	     i < bit_size(nodes); i++)
		if (gres->gres_cnt_node_alloc[i])
			bit_clear(nodes, i);
	return 0;
}

/*
 * A job that closes its nodes to other users, or to other security labels (MCS), may have
 * other nodes only that are closed for the same reason already
 */
static void keep_closed(const job_record_t *job, bitstr_t *nodes)
{
	bool by_user = (job->details->whole_node & WHOLE_NODE_USER) ||
		       (job->part_ptr &&
			(job->part_ptr->flags & PART_FLAG_EXCLUSIVE_USER));
	bool by_label = job->mcs_label &&
			(!slurm_mcs_get_select ||
			 slurm_mcs_get_select((job_record_t *) job) == 1);
	node_record_t *node;

	if (!by_user && !by_label)
		return;
	for (int i = 0; (node = next_node_bitmap(nodes, &i)); i++)
		if ((by_user && node->owner != job->user_id) ||
		    (by_label && xstrcmp(node->mcs_label, job->mcs_label)))
			bit_clear(nodes, i);
}

/* Leaves out nodes with a suspended job: its cores are free until it goes on */
static void leave_out_suspended(bitstr_t *nodes)
{
	node_record_t *node;

	for (int i = 0; (node = next_node_bitmap(nodes, &i)); i++)
		if (node->sus_job_cnt)
			bit_clear(nodes, i);
}

extern bitstr_t *gt_other_nodes(const gt_test_t *test, bitstr_t *offered,
				bitstr_t *own, uint64_t heaviest, bool by_weight)
{
	list_t *reserved = GT_RESERVED_GRES(test);
	bitstr_t *nodes = bit_copy(offered);

	bit_and_not(nodes, own);
	if (reserved)
		list_for_each(reserved, leave_out_reserved, nodes);
	if (!by_weight)
		keep_light(heaviest, nodes);
	else if (&GT_POWERED_DOWN && GT_POWERED_DOWN)
		bit_and_not(nodes, GT_POWERED_DOWN);
	if (&booting_node_bitmap && booting_node_bitmap)
		bit_and_not(nodes, booting_node_bitmap);
	leave_out_suspended(nodes);
	keep_closed(test->job, nodes);
	return nodes;
}
