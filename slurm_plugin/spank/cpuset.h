/* Numbers, and sets of logical CPUs: `0-3,8` read, written, intersected. Pure: no Slurm header. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "limits.h"

#define GT_WORD (8 * sizeof(unsigned long))

typedef struct {
	unsigned long bits[GT_CPUS / GT_WORD];
} gt_cpuset_t;

/*
 * Decimal digits at *text, at most `most`; strtoul would take blanks and signs.
 * RET false, *text unmoved, when there are none.
 */
extern bool gt_number(const char **text, unsigned long most, unsigned long *value);

/* RET false when text is no list of numbers below GT_CPUS; *set is then undefined. */
extern bool gt_cpuset_parse(gt_cpuset_t *set, const char *text);

/* The list, cut at size when it is longer. */
extern void gt_cpuset_print(const gt_cpuset_t *set, char *text, size_t size);

extern void gt_cpuset_and(gt_cpuset_t *set, const gt_cpuset_t *other);
extern unsigned gt_cpuset_count(const gt_cpuset_t *set);
extern bool gt_cpuset_equal(const gt_cpuset_t *a, const gt_cpuset_t *b);
