#include "mirror.h"

#include <stdlib.h>
#include <string.h>

/* The finalizer of splitmix64, and by it one node's share of the digest; as the engine has it */
static uint64_t mixed(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9;
	x ^= x >> 27;
	x *= 0x94d049bb133111eb;
	return x ^ x >> 31;
}

static uint64_t share(uint32_t index, uint64_t free)
{
	return mixed(mixed((uint64_t) index + 1) ^ free);
}

extern void gt_mirror_init(gt_mirror_t *mirror)
{
	memset(mirror, 0, sizeof(*mirror));
	pthread_mutex_init(&mirror->lock, NULL);
	mirror->stale = true;
}

/* All of these are called with the lock held. */

static void forget_changes(gt_mirror_t *mirror)
{
	for (uint32_t i = 0; i < mirror->changed_count; i++)
		mirror->is_changed[mirror->changed[i] / 64] = 0;
	mirror->changed_count = 0;
}

static void want(gt_mirror_t *mirror)
{
	mirror->wanted = true;
	mirror->known = 0;
}

static void note_change(gt_mirror_t *mirror, uint32_t index)
{
	uint64_t bit = 1ULL << index % 64;

	if (mirror->is_changed[index / 64] & bit)
		return;
	if (mirror->changed_count == GT_CHANGED_MAX) {
		want(mirror);
		return;
	}
	mirror->is_changed[index / 64] |= bit;
	mirror->changed[mirror->changed_count++] = index;
}

static void set_free(gt_mirror_t *mirror, uint32_t index, uint64_t free)
{
	uint64_t before = mirror->free[index];

	if (before == free)
		return;
	mirror->digest ^= share(index, before) ^ share(index, free);
	mirror->free[index] = free;
	note_change(mirror, index);
}

static void drop(gt_table_t *table)
{
	if (table && !--table->references)
		gt_table_free(table);
}

/* --------------------------------------------------------------- building */

/* What building makes before it is taken over */
typedef struct {
	gt_table_t *table;
	uint64_t *free;
	uint64_t *is_changed;
} built_t;

static void discard(built_t *built)
{
	drop(built->table);
	free(built->free);
	free(built->is_changed);
}

static bool look_at_all(built_t *built, uint32_t count, gt_look_t look)
{
	built->table = gt_table_new(count);
	built->free = calloc((size_t) count + 1, sizeof(uint64_t));
	built->is_changed = calloc((size_t) count / 64 + 1, sizeof(uint64_t));
	if (!built->table || !built->free || !built->is_changed)
		return false;
	for (uint32_t i = 0; i < count; i++) {
		gt_node_t node;

		look(i, &node);
		if (!gt_table_fill(built->table, i, &node))
			return false;
		built->free[i] = node.free;
	}
	return true;
}

static void take_over(gt_mirror_t *mirror, const built_t *built)
{
	drop(mirror->table);
	free(mirror->free);
	free(mirror->is_changed);
	mirror->table = built->table;
	mirror->free = built->free;
	mirror->is_changed = built->is_changed;
	mirror->changed_count = 0;
	mirror->digest = 0;
	for (uint32_t i = 0; i < mirror->table->count; i++)
		mirror->digest ^= share(i, mirror->free[i]);
	want(mirror);
}

extern bool gt_mirror_build(gt_mirror_t *mirror, uint32_t count, gt_look_t look,
			    bool renew)
{
	built_t built = { 0 };
	bool is_new;

	if (!look_at_all(&built, count, look)) {
		discard(&built);
		gt_mirror_forget(mirror);
		return false;
	}
	pthread_mutex_lock(&mirror->lock);
	is_new = renew || !mirror->table ||
		 !gt_table_equal(mirror->table, built.table);
	if (is_new)
		take_over(mirror, &built);
	else
		for (uint32_t i = 0; i < count; i++)
			set_free(mirror, i, built.free[i]);
	mirror->stale = false;
	pthread_mutex_unlock(&mirror->lock);
	if (!is_new)
		discard(&built);
	return true;
}

extern void gt_mirror_forget(gt_mirror_t *mirror)
{
	pthread_mutex_lock(&mirror->lock);
	mirror->stale = true;
	pthread_mutex_unlock(&mirror->lock);
}

extern uint32_t gt_mirror_count(gt_mirror_t *mirror)
{
	uint32_t count;

	pthread_mutex_lock(&mirror->lock);
	count = mirror->stale || !mirror->table ? 0 : mirror->table->count;
	pthread_mutex_unlock(&mirror->lock);
	return count;
}

extern void gt_mirror_look(gt_mirror_t *mirror, uint32_t index,
			   const gt_node_t *node)
{
	pthread_mutex_lock(&mirror->lock);
	if (!mirror->stale) {
		mirror->stale = index >= mirror->table->count ||
				!gt_table_shows(mirror->table, index, node);
		if (!mirror->stale)
			set_free(mirror, index, node->free);
	}
	pthread_mutex_unlock(&mirror->lock);
}

/* -------------------------------------------------------------- questions */

extern bool gt_mirror_known(gt_mirror_t *mirror)
{
	bool known;

	pthread_mutex_lock(&mirror->lock);
	known = !mirror->stale && mirror->known == mirror->table->number;
	pthread_mutex_unlock(&mirror->lock);
	return known;
}

extern void gt_mirror_write(gt_mirror_t *mirror, gt_line_t *line)
{
	pthread_mutex_lock(&mirror->lock);
	gt_line_hex(line, "table", mirror->table->number);
	gt_line_hex(line, "state", mirror->digest);
	for (uint32_t i = 0; i < mirror->changed_count; i++) {
		uint32_t index = mirror->changed[i];

		gt_line_add(line, i ? "," : " changed=");
		gt_line_add_decimal(line, index);
		gt_line_add(line, ":");
		gt_line_add_hex(line, mirror->free[index]);
	}
	pthread_mutex_unlock(&mirror->lock);
}

extern void gt_mirror_answered(gt_mirror_t *mirror, bool resync)
{
	pthread_mutex_lock(&mirror->lock);
	forget_changes(mirror);
	if (resync)
		want(mirror);
	pthread_mutex_unlock(&mirror->lock);
}

/* ------------------------------------------------------------- the sender */

extern uint64_t gt_mirror_number(gt_mirror_t *mirror)
{
	uint64_t number;

	pthread_mutex_lock(&mirror->lock);
	number = mirror->table ? mirror->table->number : 0;
	pthread_mutex_unlock(&mirror->lock);
	return number;
}

extern bool gt_mirror_copy(gt_mirror_t *mirror, gt_copy_t *copy)
{
	size_t size;

	memset(copy, 0, sizeof(*copy));
	pthread_mutex_lock(&mirror->lock);
	if (mirror->wanted && !mirror->stale) {
		size = mirror->table->count * sizeof(uint64_t);
		if ((copy->free = malloc(size + 1))) {
			memcpy(copy->free, mirror->free, size);
			copy->table = mirror->table;
			copy->table->references++;
			copy->digest = mirror->digest;
			mirror->wanted = false;
			forget_changes(mirror);
		}
	}
	pthread_mutex_unlock(&mirror->lock);
	return copy->table;
}

extern void gt_mirror_give_back(gt_mirror_t *mirror, gt_copy_t *copy)
{
	bool is_last;

	pthread_mutex_lock(&mirror->lock);
	is_last = !--copy->table->references;
	pthread_mutex_unlock(&mirror->lock);
	if (is_last)
		gt_table_free(copy->table);
	free(copy->free);
	memset(copy, 0, sizeof(*copy));
}

extern void gt_mirror_sent(gt_mirror_t *mirror, const gt_copy_t *copy)
{
	pthread_mutex_lock(&mirror->lock);
	if (!mirror->wanted)
		mirror->known = copy->table->number;
	mirror->taken++;
	pthread_mutex_unlock(&mirror->lock);
}

extern uint64_t gt_mirror_taken(gt_mirror_t *mirror)
{
	uint64_t taken;

	pthread_mutex_lock(&mirror->lock);
	taken = mirror->taken;
	pthread_mutex_unlock(&mirror->lock);
	return taken;
}

extern void gt_mirror_lost(gt_mirror_t *mirror)
{
	pthread_mutex_lock(&mirror->lock);
	want(mirror);
	pthread_mutex_unlock(&mirror->lock);
}
