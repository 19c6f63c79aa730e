#include "layout.h"

#include "gpus.h"

typedef enum { UNCHECKED, KNOWN, UNKNOWN } state_t;

static state_t state;

/* RET NULL, or what is not as compiled; cheap fields come before pointers. */
static const char *wrong_node(int index)
{
	node_record_t *node = node_record_table_ptr[index];

	if (!node)
		return NULL;	/* a deleted dynamic node */
	if (node->magic != NODE_MAGIC)
		return "a node record without its magic number";
	if ((int) node->index != index)
		return "a node record whose index is not its place";
	if (!node->name || !node->config_ptr ||
	    node->config_ptr->magic != CONFIG_MAGIC)
		return "a node record without name or configuration";
	if (find_node_record(node->name) != node)
		return "a node record that its own name does not find";
	return NULL;
}

/* The first node with GPUs: is its GRES record what we take it for? */
static const char *wrong_gpus(int index)
{
	gres_node_state_t *gpus = gt_node_gpus(index);

	if (!gpus || !gpus->gres_bit_alloc)
		return NULL;	/* not registered yet, or none */
	if (bit_size(gpus->gres_bit_alloc) < 1 ||
	    bit_size(gpus->gres_bit_alloc) > 65536)
		return "a GPU bit map of impossible size";
	if (gpus->topo_cnt > bit_size(gpus->gres_bit_alloc))
		return "more GPU topology records than GPUs";
	for (int i = 0; i < gpus->topo_cnt; i++) {
		bitstr_t *bits = gpus->topo_gres_bitmap ?
				 gpus->topo_gres_bitmap[i] : NULL;

		if (bits && bit_size(bits) != bit_size(gpus->gres_bit_alloc))
			return "GPU bit maps of different sizes";
	}
	return NULL;
}

static const char *wrong_tables(void)
{
	const char *wrong = NULL;

	if (!find_job_record || !&last_job_update || !&job_list)
		return "no symbols of slurmctld";
	if (node_record_count < 1 || !node_record_table_ptr)
		return "no node table";
	for (int i = 0; i < node_record_count && !wrong; i++)
		wrong = wrong_node(i);
	for (int i = 0; i < node_record_count && !wrong; i++)
		wrong = wrong_gpus(i);
	return wrong;
}

extern void gt_layout_forget(void)
{
	state = UNCHECKED;
}

extern bool gt_layout_known(void)
{
	const char *wrong;

	if (state == UNCHECKED) {
		wrong = wrong_tables();
		state = wrong ? UNKNOWN : KNOWN;
		if (wrong)
			error("gputopo: self-check found %s; every job keeps Slurm's own GPUs. Rebuild the plugin from the source of this very slurmctld",
			      wrong);
	}
	return state == KNOWN;
}

extern bool gt_layout_job(const job_record_t *job)
{
	return job->magic == JOB_MAGIC && job->details &&
	       job->details->magic == DETAILS_MAGIC;
}
