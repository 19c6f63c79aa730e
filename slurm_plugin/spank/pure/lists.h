/*
 * Bounds of the plugin, and lists of numbers: CPU sets such as `0-3,8`, and GPUs in an
 * order that matters. No Slurm header.
 */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

#define GT_GPUS 128		/* GPUs of one node, at most */
#define GT_EXACT_GPUS 16	/* nodes up to this size have a row per GPU set */
#define GT_NUMA 64		/* NUMA nodes of one node; numbers below this */
#define GT_CPUS 8192		/* logical CPUs of one node; numbers below this */
#define GT_UUID 64		/* a GPU's UUID, with its NUL */
#define GT_NAME 64		/* a name in the table, with its NUL */
#define GT_PATH 256
#define GT_TEXT 1024		/* a list of devices or NICs, with its NUL */
#define GT_NOTE 240		/* one sentence for the log */
#define GT_HINT 1024		/* bytes of a hint, as the engine allows */
#define GT_TABLE_BYTES (16u << 20)

/*
 * Reads decimal digits at *text; strtoul would take blanks and signs.
 * RET false with *text unmoved when there are none, or the number is above `most`
 */
extern bool gt_number(const char **text, unsigned long most, unsigned long *value);

/* -------------------------------------------------------------------- CPUs */

/* For the macros of sched.h: CPU_COUNT_S(sizeof(set.of), set.of) and the like */
typedef struct {
	cpu_set_t of[GT_CPUS / CPU_SETSIZE];
} gt_cpuset_t;

/* RET false when text is no list of numbers below GT_CPUS; *set is then undefined */
extern bool gt_cpuset_parse(gt_cpuset_t *set, const char *text);

/* Writes the list, cut at `size` when it is longer. */
extern void gt_cpuset_print(const gt_cpuset_t *set, char *text, size_t size);

/* -------------------------------------------------------------------- GPUs */

/* GPUs by Slurm's index */
typedef struct {
	int count;
	int gpu[GT_GPUS];
} gt_list_t;

extern bool gt_list_has(const gt_list_t *list, int gpu);

/* RET true when every member of `some` is one of `all` */
extern bool gt_list_within(const gt_list_t *some, const gt_list_t *all);

/* Reads `0,3,1`. RET false for anything else, a number twice, or one beyond GT_GPUS */
extern bool gt_list_parse(gt_list_t *list, const char *text);
