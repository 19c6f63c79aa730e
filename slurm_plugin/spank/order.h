/* The rank order of a GPU set, looked up in the table. Pure: no Slurm header. */
#pragma once

#include <stdbool.h>

#include "table.h"

/* GPUs by Slurm's index, in an order that matters. */
typedef struct {
	int count;
	int gpu[GT_GPUS];
} gt_list_t;

extern bool gt_list_has(const gt_list_t *list, int gpu);

/* Whether every member of `some` is one of `all`. */
extern bool gt_list_within(const gt_list_t *some, const gt_list_t *all);

/* `0,3,1`; RET false for anything else, for a number twice, or beyond GT_GPUS. */
extern bool gt_list_parse(gt_list_t *list, const char *text);

/*
 * Puts the GPUs of *set (all below table->gpus) in rank order.
 * RET false, *set unchanged, when the table has no such pattern or the row is damaged.
 */
extern bool gt_order(const gt_table_t *table, const char *pattern, gt_list_t *set);
