#include "cores.h"

/* RET true if Slurm may choose cores in use for this job: without this it stops at idle ones */
static bool may_share(const job_record_t *job)
{
	uint32_t most = job->part_ptr ? job->part_ptr->max_share : 1;

	return (slurm_conf.preempt_mode & PREEMPT_MODE_GANG) ||
	       (most & SHARED_FORCE) ||
	       (most > 1 && job->details->share_res == 1);
}

/* RET true if the job's cores are its own: it runs, or was suspended to take turns */
static bool has_cores(const job_record_t *job)
{
	return job->job_resrcs && job->job_resrcs->node_bitmap &&
	       job->job_resrcs->core_bitmap &&
	       (IS_JOB_RUNNING(job) ||
		(IS_JOB_SUSPENDED(job) && job->priority));
}

static bool has_core(const job_resources_t *resources, int64_t core)
{
	return core < bit_size(resources->core_bitmap) &&
	       bit_test(resources->core_bitmap, core);
}

/* A job's cores are one bitmap: those of its first node, then those of the next */
static bool overlap(const job_resources_t *one, const job_resources_t *other)
{
	int64_t of_one = 0, of_other = 0;
	bitstr_t *nodes;
	node_record_t *node;
	bool found = false;

	if (!bit_overlap_any(one->node_bitmap, other->node_bitmap))
		return false;
	nodes = bit_copy(one->node_bitmap);
	bit_or(nodes, other->node_bitmap);
	for (int i = 0; !found && (node = next_node_bitmap(nodes, &i)); i++) {
		bool in_one = bit_test(one->node_bitmap, i);
		bool in_other = bit_test(other->node_bitmap, i);

		for (int k = 0; in_one && in_other && k < node->tot_cores; k++)
			found = found || (has_core(one, of_one + k) &&
					  has_core(other, of_other + k));
		of_one += in_one ? node->tot_cores : 0;
		of_other += in_other ? node->tot_cores : 0;
	}
	FREE_NULL_BITMAP(nodes);
	return found;
}

/* For list_find_first() */
static int shares(void *item, void *key)
{
	const job_record_t *other = item, *job = key;

	return other != job && has_cores(other) &&
	       overlap(job->job_resrcs, other->job_resrcs);
}

static bool has_neighbours(const job_record_t *job)
{
	node_record_t *node;

	for (int i = 0; (node = next_node_bitmap(job->job_resrcs->node_bitmap, &i)); i++)
		if (node->run_job_cnt || node->sus_job_cnt)
			return true;
	return false;
}

extern bool gt_shares_cores(const job_record_t *job)
{
	return may_share(job) && job->job_resrcs &&
	       job->job_resrcs->core_bitmap && has_neighbours(job) &&
	       &job_list && job_list &&
	       list_find_first(job_list, shares, (void *) job);
}

/* RET true if as many cores of each of the nodes are as many CPUs as of this one */
static bool are_like(const node_record_t *one, bitstr_t *nodes, bool has_cores)
{
	node_record_t *node;

	for (int i = 0; (node = next_node_bitmap(nodes, &i)); i++)
		if (one->tpc != node->tpc ||
		    (has_cores && (one->tot_sockets != node->tot_sockets ||
				   one->cores != node->cores)))
			return false;
	return true;
}

static uint32_t sockets_of(const job_resources_t *resources)
{
	node_record_t *node;
	int64_t first = 0;
	uint32_t found = 0;

	for (int i = 0; (node = next_node_bitmap(resources->node_bitmap, &i)); i++) {
		for (int socket = 0; socket < node->tot_sockets; socket++) {
			int64_t core = first + (int64_t) socket * node->cores;
			int64_t end = core + node->cores;

			while (core < end && !has_core(resources, core))
				core++;
			found += core < end;
		}
		first += node->tot_cores;
	}
	return found;
}

static uint64_t memory_of(const job_resources_t *resources)
{
	uint64_t found = 0;

	for (uint32_t i = 0; resources && resources->memory_allocated && i < resources->nhosts; i++)
		found += resources->memory_allocated[i];
	return found;
}

extern gt_cpus_t gt_cpus_of(const job_record_t *job)
{
	const job_resources_t *resources = job->job_resrcs;
	bool are_whole = resources && resources->core_bitmap &&
			 (resources->cr_type & GT_SOCKETS);

	return (gt_cpus_t) { .cpus = job->total_cpus,
			     .sockets = are_whole ? sockets_of(resources) : 0,
			     .memory_mb = memory_of(resources) };
}

/* RET true if Slurm checks limits of users and accounts by what a job was given */
static bool has_limits(void)
{
	return &accounting_enforce &&
	       (accounting_enforce & ACCOUNTING_ENFORCE_LIMITS);
}

extern bool gt_has_other_cpus(const job_record_t *job, const gt_cpus_t *own,
			      bitstr_t *nodes)
{
	int first = 0;
	const node_record_t *one = next_node_bitmap(nodes, &first);
	bitstr_t *ours = job->job_resrcs->node_bitmap;
	/* of another node fewer, unless it is the whole of it or one node of less than before */
	bool as_many = bit_set_count(ours) == bit_set_count(nodes);
	bool is_less = job->total_cpus < own->cpus && as_many &&
		       !(job->details->whole_node & WHOLE_NODE_REQUIRED);
	gt_cpus_t now = gt_cpus_of(job);

	if (now.sockets > own->sockets || (as_many && now.memory_mb < own->memory_mb))
		return true;
	if (has_limits() &&
	    (now.cpus > own->cpus || now.memory_mb > own->memory_mb ||
	     bit_set_count(ours) > bit_set_count(nodes)))
		return true;
	return job->total_cpus != own->cpus && one &&
	       are_like(one, nodes, !is_less) && are_like(one, ours, !is_less);
}
