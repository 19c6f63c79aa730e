#include "order.h"

#include <stdlib.h>
#include <string.h>

#include "cpuset.h"

extern bool gt_list_has(const gt_list_t *list, int gpu)
{
	for (int i = 0; i < list->count; i++)
		if (list->gpu[i] == gpu)
			return true;
	return false;
}

extern bool gt_list_within(const gt_list_t *some, const gt_list_t *all)
{
	for (int i = 0; i < some->count; i++)
		if (!gt_list_has(all, some->gpu[i]))
			return false;
	return true;
}

extern bool gt_list_parse(gt_list_t *list, const char *text)
{
	unsigned long gpu;

	list->count = 0;
	for (;;) {
		if (!gt_number(&text, GT_GPUS - 1, &gpu) || gt_list_has(list, (int) gpu))
			return false;
		list->gpu[list->count++] = (int) gpu;
		if (!*text)
			return true;
		if (*text++ != ',')
			return false;
	}
}

static char *row_start(const gt_pattern_t *pattern, char *at)
{
	while (at > pattern->rows && at[-1])
		at--;
	return at;
}

/* The row of a mask by halving, as masks ascend and have the same number of digits. */
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

/* A row's digits, taken only if they are the set itself in another order. */
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
