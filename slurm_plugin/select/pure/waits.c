#include "waits.h"

#include <stdlib.h>
#include <string.h>

/* Open addressing with linear probing; a power of two of places, half of them used at most */
static gt_wait_t **places;
static uint32_t place_count, used;
static uint32_t added;		/* since the last sweep */
static uint32_t swept;		/* how many stayed then */

static uint32_t first_place(uint32_t job_id)
{
	return (job_id * 2654435769u) & (place_count - 1);
}

/* RET the job's place, or the free one where it belongs */
static uint32_t place_of(uint32_t job_id)
{
	uint32_t at = first_place(job_id);

	while (places[at] && places[at]->job_id != job_id)
		at = (at + 1) & (place_count - 1);
	return at;
}

static void grow(void)
{
	gt_wait_t **old = places;
	uint32_t old_count = place_count;

	place_count = old_count ? 2 * old_count : 64;
	if (!(places = calloc(place_count, sizeof(gt_wait_t *))))
		abort();	/* as Slurm's own allocator */
	for (uint32_t i = 0; i < old_count; i++)
		if (old[i])
			places[place_of(old[i]->job_id)] = old[i];
	free(old);
}

extern gt_wait_t *gt_waits_find(uint32_t job_id)
{
	return place_count ? places[place_of(job_id)] : NULL;
}

extern gt_wait_t *gt_waits_add(uint32_t job_id)
{
	gt_wait_t *wait = gt_waits_find(job_id);

	if (wait)
		return wait;
	if (2 * (used + 1) > place_count)
		grow();
	if (!(wait = calloc(1, sizeof(*wait))))
		abort();
	wait->job_id = job_id;
	places[place_of(job_id)] = wait;
	used++;
	added++;
	return wait;
}

extern void gt_waits_drop(uint32_t job_id)
{
	uint32_t hole, at;

	if (!gt_waits_find(job_id))
		return;
	hole = at = place_of(job_id);
	free(places[hole]);
	places[hole] = NULL;
	used--;
	/* what was put behind it for want of room moves up, or it would not be found */
	for (;;) {
		uint32_t first;

		at = (at + 1) & (place_count - 1);
		if (!places[at])
			return;
		first = first_place(places[at]->job_id);
		if (((at - first) & (place_count - 1)) >=
		    ((at - hole) & (place_count - 1))) {
			places[hole] = places[at];
			places[at] = NULL;
			hole = at;
		}
	}
}

extern bool gt_waits_to_sweep(void)
{
	if (added < 64 || added < swept)
		return false;
	added = 0;
	return true;
}

extern void gt_waits_sweep(bool (*is_gone)(uint32_t job_id))
{
	uint32_t *gone = malloc((used + 1) * sizeof(*gone)), count = 0;

	for (uint32_t i = 0; gone && i < place_count; i++)
		if (places[i] && is_gone(places[i]->job_id))
			gone[count++] = places[i]->job_id;
	while (count)
		gt_waits_drop(gone[--count]);
	free(gone);
	swept = used;
}

extern void gt_waits_free(void)
{
	for (uint32_t i = 0; i < place_count; i++)
		free(places[i]);
	free(places);
	places = NULL;
	place_count = used = added = swept = 0;
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
