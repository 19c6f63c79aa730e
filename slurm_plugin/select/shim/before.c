#include "before.h"

/*
 * What a selection changes. A job for which cons_tres found no cores is held: it has
 * priority 0 and another reason
 */
#define PUT_BACK(X) \
	X(job, total_cpus) \
	X(job, priority) \
	X(job, state_reason) \
	X(job, best_switch) \
	X(details, pn_min_memory) \
	X(details, min_cpus) \
	X(details, cpus_per_task) \
	X(details, core_spec) \
	X(details, whole_node)

/*
 * What stays as the selection left it. Slurm made the first selection without us, too: from
 * it on a job with --switches waits, and an impossible count of switches is taken away. The
 * others are worked out anew, or replaced, at each selection.
 */
#define LEFT(X) \
	X(job, wait4switch_start) \
	X(job, req_switch) \
	X(job, job_resrcs) \
	X(job, gres_list_req_accum) \
	X(job, cpus_per_tres) \
	X(job, mem_per_tres) \
	X(details, min_gres_cpu) \
	X(details, min_job_gres_cpu) \
	X(details, mc_ptr) \
	X(details, usable_nodes) \
	GT_NETWORK_OF_JOB(X)

extern void gt_before_keep(gt_before_t *before, const job_record_t *job)
{
	/* with the bytes between fields, which an assignment may leave out */
	memcpy(&before->job, job, sizeof(before->job));
	memcpy(&before->details, job->details, sizeof(before->details));
}

extern void gt_before_put_back(const gt_before_t *before, job_record_t *job)
{
#define BACK_job(field) job->field = before->job.field;
#define BACK_details(field) job->details->field = before->details.field;
#define BACK(record, field) BACK_##record(field)
	PUT_BACK(BACK)
}

/* RET the first byte in which they differ, or -1 */
static long differs(const void *one, const void *other, size_t size)
{
	const char *a = one, *b = other;

	for (size_t i = 0; i < size; i++)
		if (a[i] != b[i])
			return (long) i;
	return -1;
}

extern bool gt_before_check(const gt_before_t *before, const job_record_t *job)
{
	static bool said;
	gt_before_t now;
	long in_job, in_details;

	if (said)
		return false;
	gt_before_keep(&now, job);
#define SAME(record, field) now.record.field = before->record.field;
	PUT_BACK(SAME)
	LEFT(SAME)
	in_job = differs(&now.job, &before->job, sizeof(now.job));
	in_details = differs(&now.details, &before->details,
			     sizeof(now.details));
	if (in_job < 0 && in_details < 0)
		return true;
	said = true;
	error("gputopo: %pJ: Slurm's selection changed byte %ld of its record, %ld of its details, which is not put back where another one follows; please report this with your release",
	      job, in_job, in_details);
	return false;
}
