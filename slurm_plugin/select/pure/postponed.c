#include "postponed.h"

#include <stdlib.h>

/* Ids of jobs are consecutive: beyond so many jobs each place has two of them, and so on. */
#define PLACES 16384

static gt_postponed_t *first[PLACES];
static uint32_t used;
static uint32_t added;		/* since the last sweep */
static uint32_t swept;		/* how many stayed then */

/* RET what points to the job's, or to NULL where it belongs */
static gt_postponed_t **link_of(uint32_t job_id)
{
	gt_postponed_t **link = &first[job_id % PLACES];

	while (*link && (*link)->job_id != job_id)
		link = &(*link)->next;
	return link;
}

static void drop(gt_postponed_t **link)
{
	gt_postponed_t *gone = *link;

	*link = gone->next;
	free(gone);
	used--;
}

extern gt_postponed_t *gt_postponed_find(uint32_t job_id)
{
	return *link_of(job_id);
}

extern gt_postponed_t *gt_postponed_add(uint32_t job_id)
{
	gt_postponed_t **link = link_of(job_id);

	if (*link)
		return *link;
	if (!(*link = calloc(1, sizeof(**link))))
		abort();	/* as Slurm's own allocator */
	(*link)->job_id = job_id;
	used++;
	added++;
	return *link;
}

extern void gt_postponed_drop(uint32_t job_id)
{
	gt_postponed_t **link = link_of(job_id);

	if (*link)
		drop(link);
}

extern bool gt_postponed_sweep_due(void)
{
	if (added < 64 || added < swept)
		return false;
	added = 0;
	return true;
}

extern void gt_postponed_sweep(bool (*is_gone)(uint32_t job_id))
{
	for (uint32_t i = 0; i < PLACES; i++)
		for (gt_postponed_t **link = &first[i]; *link;) {
			if (is_gone((*link)->job_id))
				drop(link);
			else
				link = &(*link)->next;
		}
	swept = used;
}

static bool is_any(uint32_t job_id)
{
	(void) job_id;
	return true;
}

extern void gt_postponed_free(void)
{
	gt_postponed_sweep(is_any);
	added = 0;
	gt_asleep_clear();
}

/* ------------------------------------------------------------- who sleeps now */

static struct {
	uint32_t job_id;
	uint32_t user;
} sleepers[GT_ASLEEP_MAX];
static int sleeper_count;

static bool is_asleep(uint32_t job_id)
{
	for (int i = 0; i < sleeper_count; i++)
		if (sleepers[i].job_id == job_id)
			return true;
	return false;
}

extern bool gt_asleep_has_room(uint32_t job_id, uint32_t user)
{
	int of_user = 0;

	if (is_asleep(job_id))
		return true;
	for (int i = 0; i < sleeper_count; i++)
		of_user += sleepers[i].user == user;
	return sleeper_count < GT_ASLEEP_MAX && of_user < GT_ASLEEP_OF_ONE;
}

extern void gt_asleep_add(uint32_t job_id, uint32_t user)
{
	if (is_asleep(job_id) || sleeper_count == GT_ASLEEP_MAX)
		return;
	sleepers[sleeper_count].job_id = job_id;
	sleepers[sleeper_count++].user = user;
}

extern void gt_asleep_keep(bool (*stays)(uint32_t job_id, void *arg), void *arg)
{
	int kept = 0;

	for (int i = 0; i < sleeper_count; i++)
		if (stays(sleepers[i].job_id, arg))
			sleepers[kept++] = sleepers[i];
	sleeper_count = kept;
}

extern void gt_asleep_clear(void)
{
	sleeper_count = 0;
}
