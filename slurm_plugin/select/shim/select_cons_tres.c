/*
 * The shadow of select/cons_tres: Slurm loads it in place of the stock plugin, as it
 * has the same type and id and lies in an earlier PluginDir. It hands every call on to
 * the stock plugin; what it does besides is in the other files.
 */
#include "advise.h"
#include "cluster.h"
#include "job_events.h"
#include "plugin.h"
#include "sleepers.h"
#include "stock.h"

const char plugin_name[] = GT_PLUGIN_NAME;
const char plugin_type[] = "select/cons_tres";
const uint32_t plugin_id = SELECT_PLUGIN_CONS_TRES;
const uint32_t plugin_version = SLURM_VERSION_NUMBER;

/* The same for `gputopo doctor`, which finds it in the file by its mark. */
static const struct {
	char mark[16];
	uint32_t version;
} gt_built_for __attribute__((used)) = { "gputopo-version", SLURM_VERSION_NUMBER };

extern int init(void)
{
	if (gt_stock_open() != SLURM_SUCCESS)
		return SLURM_ERROR;
	gt_channel_init(&gt_plugin.channel);
	gt_mirror_init(&gt_plugin.mirror);
	return SLURM_SUCCESS;
}

extern int fini(void)
{
	gt_sleepers_stop();
	gt_plugin_stop();
	gt_stock_close();
	return SLURM_SUCCESS;
}

#define GT_FORWARD(name) \
	extern long select_p_##name(long a, long b, long c, long d, long e, \
				    long f) \
	{ \
		return gt_stock.name ? gt_stock.name(a, b, c, d, e, f) : \
				       SLURM_ERROR; \
	}
GT_FORWARDS(GT_FORWARD)
#undef GT_FORWARD

/* Slurm's declaration of select_g_NAME has the arguments of select_p_NAME. */
#define GT_AS_DECLARED(name) \
	_Static_assert(__builtin_types_compatible_p( \
			       __typeof__(select_p_##name), \
			       __typeof__(select_g_##name)), \
		       "select_p_" #name \
		       "(): this Slurm declares it with other arguments; adapt it here and in compat.h");

extern int select_p_node_init(void)
{
	gt_sleepers_forget();
	gt_plugin_read();
	gt_cluster_renew();
	return gt_stock.node_init();
}

/* At the end of reading slurm.conf, and after changes of partitions and dynamic nodes */
extern int select_p_reconfigure(void)
{
	int rc = gt_stock.reconfigure();

	gt_cluster_build();
	return rc;
}

extern int select_p_update_node_config(int index)
{
	int rc = gt_stock.update_node_config ?
		gt_stock.update_node_config(index) : SLURM_SUCCESS;

	gt_cluster_node(index);
	return rc;
}

extern int select_p_state_save(char *dir)
{
	gt_plugin_sum_up();
	return gt_stock.state_save ? gt_stock.state_save(dir) : SLURM_SUCCESS;
}

extern int select_p_job_test(job_record_t *job, bitstr_t *nodes,
			     uint32_t min_nodes, uint32_t max_nodes,
			     uint32_t req_nodes, uint16_t mode,
			     list_t *preemptee_candidates,
			     list_t **preemptee_job_list, GT_TEST_TAIL)
{
	gt_test_t test = {
		.job = job,
		.nodes = nodes,
		.min_nodes = min_nodes,
		.max_nodes = max_nodes,
		.req_nodes = req_nodes,
		.mode = mode,
		.preemptee_candidates = preemptee_candidates,
		.preemptee_job_list = preemptee_job_list,
		GT_TEST_TAIL_INIT,
	};

	return gt_advise_job_test(&test);
}

extern int select_p_job_begin(job_record_t *job)
{
	int rc = gt_stock.job_begin(job);

	if (rc == SLURM_SUCCESS) {
		gt_unasked_begin(job);
		if (gt_plugin_may_read(job))
			gt_job_begins(job);
	}
	return rc;
}

extern int select_p_select_nodeinfo_set(job_record_t *job)
{
	uint64_t before = gt_unasked_gpus(job);
	int rc = gt_stock.select_nodeinfo_set(job);

	gt_cluster_job(job);
	if (rc == SLURM_SUCCESS) {
		gt_unasked_started(job, before);
		gt_job_started(job);
	}
	return rc;
}

extern int select_p_job_expand(job_record_t *from, job_record_t *to)
{
	int rc = gt_stock.job_expand(from, to);

	gt_cluster_job(to);
	return rc;
}

extern int select_p_job_resized(job_record_t *job, node_record_t *node)
{
	int rc = gt_stock.job_resized(job, node);

	gt_cluster_job(job);
	if (gt_plugin_may_act())
		gt_cluster_node((int) node->index);
	return rc;
}

extern int select_p_job_suspend(job_record_t *job, bool indefinitely)
{
	int rc = gt_stock.job_suspend(job, indefinitely);

	gt_cluster_job(job);
	return rc;
}

extern int select_p_job_resume(job_record_t *job, bool indefinitely)
{
	int rc = gt_stock.job_resume(job, indefinitely);

	gt_cluster_job(job);
	return rc;
}

extern int select_p_job_fini(job_record_t *job)
{
	int rc = gt_stock.job_fini(job);

	gt_cluster_job(job);
	if (gt_plugin_may_read(job)) {
		gt_job_ended(job);
		gt_sleepers_wake(job);
	}
	gt_plugin_sum_up();
	return rc;
}

GT_HOOKED(GT_AS_DECLARED)
GT_DECLARED_WHERE_THERE(GT_AS_DECLARED)
GT_AS_DECLARED(job_test)
