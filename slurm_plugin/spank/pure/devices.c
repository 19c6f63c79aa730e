#include "devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* -------------------------------------------------------------- rank order */

static char *row_start(const gt_pattern_t *pattern, char *at)
{
	while (at > pattern->rows && at[-1])
		at--;
	return at;
}

/* Finds the row of a mask by halving, as masks ascend. RET NULL when it has none */
static const char *find_row(const gt_pattern_t *pattern, unsigned long mask)
{
	char *low = pattern->rows, *high = pattern->rows_end;

	while (low < high) {
		char *row = row_start(pattern, low + (high - low) / 2);
		unsigned long found = strtoul(row, NULL, 16);

		if (found == mask)
			return row;
		if (found < mask)
			low = row + strlen(row) + 1;
		else
			high = row;
	}
	return NULL;
}

/* Orders the set as the row does. RET false when the row is not about this very set */
static bool take_row(const char *row, gt_list_t *set)
{
	static const char hex[] = "0123456789abcdef";
	const char *digits = strchr(row, ' '), *digit;
	gt_list_t found = { 0 };

	while (digits && *++digits) {
		int gpu = (digit = strchr(hex, *digits)) ? (int) (digit - hex) : -1;

		if (!gt_list_has(set, gpu) || gt_list_has(&found, gpu))
			return false;
		found.gpu[found.count++] = gpu;
	}
	if (found.count != set->count)
		return false;
	*set = found;
	return true;
}

extern bool gt_order(const gt_table_t *table, const char *pattern, gt_list_t *set)
{
	const gt_pattern_t *known = gt_table_pattern(table, pattern);
	gt_list_t found = { 0 };
	unsigned long mask = 0;
	const char *row = NULL;

	if (!known)
		return false;
	if (table->gpus <= GT_EXACT_GPUS) {
		for (int i = 0; i < set->count; i++)
			mask |= 1ul << set->gpu[i];
		row = find_row(known, mask);
	}
	if (row)
		return take_row(row, set);
	for (int i = 0; i < table->gpus; i++)
		if (gt_list_has(set, known->order[i]))
			found.gpu[found.count++] = known->order[i];
	*set = found;
	return true;
}

/* ------------------------------------------------------- a task's own GPUs */

/* How Slurm gives a step's GPUs to its tasks. */
typedef enum { WHOLE, PER_TASK, CHOSEN } share_t;

/* One call of gt_devices(), and what it has found so far */
typedef struct {
	const gt_table_t *table;
	const gt_settings_t *settings;
	const gt_task_t *task;
	gt_list_t step, visible;
	gt_list_t *gpus;	/* the task's, in rank order */
	gt_list_t seen;		/* those that CUDA or ROCr can see; relative numbers count them */
	bool is_relative;
	bool by_uuid;		/* Slurm and we name GPUs by UUID (gres.conf: Flags=env_uuid) */
	share_t share;
	int per_task;
	char *note;
} case_t;

/* SLURMD_TRES_BIND: `gres/gpu:per_task:2`, on 22.05 `gpu:per_task:2`. */
static void read_share(case_t *c)
{
	const char *how = strstr(c->task->tres_bind, "gpu:");
	unsigned long count;

	c->share = how ? CHOSEN : WHOLE;
	if (!how)
		return;
	how += 4;
	if (!strncmp(how, "verbose,", 8))
		how += 8;
	if (!strncmp(how, "none", 4))
		c->share = WHOLE;
	if (strncmp(how, "per_task:", 9))
		return;
	how += 9;
	if (gt_number(&how, GT_GPUS, &count) && count) {
		c->share = PER_TASK;
		c->per_task = (int) count;
	}
}

/* RET Slurm's index of the GPU with this UUID, or GT_UNKNOWN */
static int index_of(const case_t *c, const char *uuid, size_t len)
{
	const gt_uuids_t *uuids = c->task->uuids;

	for (int gpu = 0; gpu < c->table->gpus; gpu++) {
		const char *known = uuids->uuid[c->table->gpu[gpu].device];

		if (strlen(known) == len && !strncasecmp(known, uuid, len))
			return gpu;
	}
	return GT_UNKNOWN;
}

static bool read_uuids(case_t *c)
{
	int known = c->task->uuids ? c->task->uuids->count : 0;

	c->by_uuid = true;
	if (known != c->table->gpus) {
		snprintf(c->note, GT_NOTE, "the visible devices are UUIDs, and the driver names"
			 " %d of the %d GPUs in the table (%s)", known, c->table->gpus,
			 c->table->machine);
		return false;
	}
	for (const char *at = c->task->visible; *at;) {
		size_t len = strcspn(at, ",");
		int gpu = index_of(c, at, len);

		if (gpu == GT_UNKNOWN || gt_list_has(&c->visible, gpu)) {
			snprintf(c->note, GT_NOTE, "the visible device \"%.*s\" is none of this"
				 " node's GPUs, or named twice", len < 60 ? (int) len : 60, at);
			return false;
		}
		c->visible.gpu[c->visible.count++] = gpu;
		at += len + (at[len] == ',');
	}
	return true;
}

static bool read_lists(case_t *c)
{
	if (!gt_list_parse(&c->step, c->task->step_gpus)) {
		snprintf(c->note, GT_NOTE, "the step's GPUs are \"%.60s\"; expected indices",
			 c->task->step_gpus);
		return false;
	}
	for (int i = 0; i < c->step.count; i++)
		if (c->step.gpu[i] >= c->table->gpus) {
			snprintf(c->note, GT_NOTE, "the step has GPU %d and the table (%s) ends"
				 " at %d; is it another machine's?", c->step.gpu[i],
				 c->table->machine, c->table->gpus - 1);
			return false;
		}
	if (!strncmp(c->task->visible, "GPU-", 4))
		return read_uuids(c);
	if (gt_list_parse(&c->visible, c->task->visible))
		return true;
	snprintf(c->note, GT_NOTE, "the visible devices are \"%.60s\"; expected indices"
		 " or UUIDs of whole GPUs (a MIG slice stays as Slurm set it)", c->task->visible);
	return false;
}

/* RET how the visible devices are numbered; GT_AUTO when neither way fits the step's */
static gt_numbering_t numbering(const case_t *c)
{
	bool is_global = gt_list_within(&c->visible, &c->step), is_relative = true;

	if (c->by_uuid)
		return GT_GLOBAL;
	if (c->settings->numbering != GT_AUTO)
		return c->settings->numbering;
	for (int i = 0; i < c->visible.count; i++)
		is_relative = is_relative && c->visible.gpu[i] < c->step.count;
	if (is_global && is_relative)
		return c->task->access.is_restricted ? GT_RELATIVE : GT_GLOBAL;
	return is_global ? GT_GLOBAL : is_relative ? GT_RELATIVE : GT_AUTO;
}

/*
 * With --gpus-per-task and nothing hidden, each task may get any GPUs that no other task gets.
 * They are dealt in rank order, so that neighbouring ranks get neighbouring GPUs. Not where Slurm
 * has placed the tasks on CPUs: there it has given each the GPUs nearest to its CPUs. Numbers tell
 * whether something is hidden from the task; UUIDs do not.
 */
static bool may_divide(const case_t *c)
{
	return c->share == PER_TASK && !c->task->is_cpu_bound &&
		!(c->by_uuid && c->task->access.is_restricted) &&
		c->visible.count == c->per_task &&
		c->task->local_id >= 0 && c->task->local_id < c->task->tasks &&
		c->task->tasks * c->per_task == c->step.count;
}

static bool in_order(const case_t *c, gt_list_t *gpus)
{
	if (gt_order(c->table, c->settings->pattern, gpus))
		return true;
	snprintf(c->note, GT_NOTE, "the table (%s) has no good row for pattern \"%.40s\" and"
		 " these %d GPUs", c->table->machine, c->settings->pattern, gpus->count);
	return false;
}

static bool global(case_t *c)
{
	gt_list_t whole = c->step;

	*c->gpus = c->visible;
	if (!gt_list_within(&c->visible, &c->step)) {
		snprintf(c->note, GT_NOTE, "the visible devices \"%.60s\" are not among the"
			 " step's GPUs \"%.60s\"", c->task->visible, c->task->step_gpus);
		return false;
	}
	if (c->share == CHOSEN)
		return true;
	if (!may_divide(c))
		return in_order(c, c->gpus);
	if (!in_order(c, &whole))
		return false;
	c->gpus->count = c->per_task;
	for (int i = 0; i < c->per_task; i++)
		c->gpus->gpu[i] = whole.gpu[c->task->local_id * c->per_task + i];
	return true;
}

/* Slurm counts a constrained step's GPUs in the order of its own indices. */
static gt_list_t ascending(const gt_list_t *list)
{
	gt_list_t sorted = { 0 };

	for (int gpu = 0; gpu < GT_GPUS; gpu++)
		if (gt_list_has(list, gpu))
			sorted.gpu[sorted.count++] = gpu;
	return sorted;
}

/* Finds the step's GPUs whose devices this task may open. RET false when that is not known */
static bool openable(const case_t *c, gt_list_t *open)
{
	const gt_access_t *access = &c->task->access;

	open->count = 0;
	if (!access->is_known || !access->has_minors)
		return false;
	for (int i = 0; i < c->step.count; i++)
		if (gt_list_has(&access->open, c->step.gpu[i]))
			open->gpu[open->count++] = c->step.gpu[i];
	return true;
}

static bool relative(case_t *c)
{
	gt_list_t step = ascending(&c->step), open;
	bool is_known = openable(c, &open);

	if (c->visible.count == step.count) {
		c->seen = step;
	} else if (is_known && open.count == c->visible.count) {
		c->seen = ascending(&open);	/* the task has a cgroup of its own */
	} else if (is_known && open.count == step.count) {
		c->seen = step;			/* --gres-flags=allow-task-sharing */
	} else {
		snprintf(c->note, GT_NOTE, "which GPUs the relative numbers \"%.60s\" mean cannot"
			 " be told; expected the device minors in the table (%s)",
			 c->task->visible, c->table->machine);
		return false;
	}
	c->gpus->count = 0;
	for (int i = 0; i < c->visible.count; i++) {
		if (c->visible.gpu[i] >= c->seen.count) {
			snprintf(c->note, GT_NOTE, "the visible devices are \"%.60s\"; expected"
				 " numbers below %d", c->task->visible, c->seen.count);
			return false;
		}
		c->gpus->gpu[c->gpus->count++] = c->seen.gpu[c->visible.gpu[i]];
	}
	return c->share == CHOSEN || in_order(c, c->gpus);
}

/* RET the GPU's number among those that can be seen; drivers count by PCI address */
static int name_of(const case_t *c, int gpu)
{
	int device = c->table->gpu[gpu].device, before = 0;

	if (!c->is_relative)
		return device;
	for (int i = 0; i < c->seen.count; i++)
		before += c->table->gpu[c->seen.gpu[i]].device < device;
	return before;
}

static size_t write_name(const case_t *c, int gpu, const char *comma, char *to, size_t size)
{
	if (c->by_uuid)
		return (size_t) snprintf(to, size, "%s%s", comma,
					 c->task->uuids->uuid[c->table->gpu[gpu].device]);
	return (size_t) snprintf(to, size, "%s%d", comma, name_of(c, gpu));
}

extern bool gt_devices(const gt_table_t *table, const gt_settings_t *settings,
		       const gt_task_t *task, gt_list_t *gpus, char *visible, char *note)
{
	case_t c = { .table = table, .settings = settings, .task = task, .note = note,
		     .gpus = gpus };
	gt_numbering_t found;
	size_t at = 0;

	visible[0] = note[0] = '\0';
	if (!task->step_gpus[0] || !task->visible[0] || !read_lists(&c))
		return false;
	read_share(&c);
	found = numbering(&c);
	if (found == GT_AUTO) {
		snprintf(note, GT_NOTE, "the visible devices \"%.60s\" fit neither the step's GPUs"
			 " \"%.60s\" nor a count of them", task->visible, task->step_gpus);
		return false;
	}
	c.is_relative = found == GT_RELATIVE;
	if (!(c.is_relative ? relative(&c) : global(&c)))
		return false;
	for (int i = 0; i < gpus->count && at < GT_TEXT; i++)
		at += write_name(&c, gpus->gpu[i], i ? "," : "", visible + at, GT_TEXT - at);
	return true;
}
