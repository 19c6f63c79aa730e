#define _GNU_SOURCE
#include "layout.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gpus.h"

typedef enum { UNCHECKED, KNOWN, UNKNOWN } state_t;

static state_t nodes, jobs;

/* Slurm's allocator knows the size of each record of the running slurmctld. */
static const char *wrong_size(const char *what, const void *record,
			      size_t compiled)
{
	static char text[80];
	size_t size = xsize((void *) record);

	if (size == compiled)
		return NULL;
	snprintf(text, sizeof(text), "%s of %zu bytes instead of %zu", what,
		 size, compiled);
	return text;
}
#define WRONG_SIZE(what, record) wrong_size(what, record, sizeof(*(record)))

/*
 * A pointer read from a wrong place may point anywhere. This call fails in any case,
 * because ~0 is no operation; but with EFAULT if the kernel cannot read there.
 */
static bool is_readable(const void *pointer)
{
	if (!pointer || (uintptr_t) pointer % sizeof(uint64_t))
		return false;
	errno = 0;
	syscall(SYS_rt_sigprocmask, ~0, pointer, NULL, sizeof(uint64_t));
	return errno == EINVAL;
}

/* RET NULL, or what is not as compiled. Fields are checked before pointers are followed. */
static const char *wrong_node(int index)
{
	node_record_t *node = node_record_table_ptr[index];
	gres_state_t *gres;
	const char *wrong;

	if (!node)
		return NULL;	/* a deleted dynamic node */
	if ((wrong = WRONG_SIZE("a node record", node)))
		return wrong;
	if (node->magic != NODE_MAGIC)
		return "a node record without its magic number";
	if ((int) node->index != index)
		return "a node record whose index is not its place";
	if (!is_readable(node->name) || !is_readable(node->config_ptr) ||
	    node->config_ptr->magic != CONFIG_MAGIC)
		return "a node record without name or configuration";
	if ((wrong = WRONG_SIZE("a node's configuration", node->config_ptr)))
		return wrong;
	if (find_node_record(node->name) != node)
		return "a node record that its own name does not find";
	gres = node->gres_list ? list_peek(node->gres_list) : NULL;
	return gres ? WRONG_SIZE("a GRES record", gres) : NULL;
}

static bool impossible(bitstr_t *bits)
{
	return bit_size(bits) < 1 || bit_size(bits) > 65536;
}

/* RET NULL, or how a node's GPU record differs from what was compiled */
static const char *wrong_gpus(int index)
{
	gres_node_state_t *gpus = gt_node_gpus(index);
	const char *wrong;

	if (!gpus)
		return NULL;
	if ((wrong = WRONG_SIZE("a node's GPU record", gpus)))
		return wrong;
	if (!gpus->gres_bit_alloc)
		return NULL;	/* not registered yet, or none */
	if (impossible(gpus->gres_bit_alloc))
		return "a GPU bit map of impossible size";
	/* they may be of another size until a node with other GPUs has registered */
	for (int i = 0; gpus->topo_gres_bitmap && i < gpus->topo_cnt; i++)
		if (gpus->topo_gres_bitmap[i] &&
		    impossible(gpus->topo_gres_bitmap[i]))
			return "a GPU topology bit map of impossible size";
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

/* The same. From release to release Slurm adds fields, which moves those that we read. */
static const char *wrong_job(const job_record_t *job)
{
	const char *wrong = WRONG_SIZE("a job record", job);

	if (wrong)
		return wrong;
	if (job->magic != JOB_MAGIC)
		return "a job record without its magic number";
	if (find_job_record(job->job_id) != job)
		return "a job record that its own id does not find";
	if (!is_readable(job->details) || job->details->magic != DETAILS_MAGIC)
		return "a job record without details";
	if ((wrong = WRONG_SIZE("a job's details", job->details)))
		return wrong;
	if (job->part_ptr && (!is_readable(job->part_ptr) ||
			      job->part_ptr->magic != PART_MAGIC))
		return "a job record whose partition is none";
	if (job->part_ptr &&
	    (wrong = WRONG_SIZE("a partition record", job->part_ptr)))
		return wrong;
	return NULL;
}

static bool passed(state_t *state, const char *wrong)
{
	*state = wrong ? UNKNOWN : KNOWN;
	if (wrong)
		error("gputopo: self-check found %s; every job keeps Slurm's own GPUs. Rebuild the plugin from the source of this very slurmctld",
		      wrong);
	return !wrong;
}

extern void gt_layout_forget(void)
{
	nodes = jobs = UNCHECKED;
}

extern bool gt_layout_nodes(void)
{
	return nodes == UNCHECKED ? passed(&nodes, wrong_tables()) :
				    nodes == KNOWN;
}

extern bool gt_layout_known(void)
{
	return jobs != UNKNOWN && gt_layout_nodes();
}

extern bool gt_layout_job(const job_record_t *job)
{
	if (!gt_layout_known() ||
	    (jobs == UNCHECKED && !passed(&jobs, wrong_job(job))))
		return false;
	return job->magic == JOB_MAGIC && job->details &&
	       job->details->magic == DETAILS_MAGIC;
}

extern bool gt_layout_reservation(const slurmctld_resv_t *reservation)
{
	return xsize((void *) reservation) == sizeof(*reservation);
}

extern bool gt_layout_selection(const job_record_t *job,
				const gres_job_state_t *gpus)
{
	const char *wrong = WRONG_SIZE("a job's GPU request", gpus);

	if (!wrong)
		wrong = WRONG_SIZE("a job's resources", job->job_resrcs);
	return !wrong || passed(&jobs, wrong);
}
