/*
 * The node's launch table, as `gputopo launch-table` writes it (docs/binding.md has the
 * format). It is read whole and checked before any of it is used. No Slurm header.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lists.h"

#define GT_PATTERNS 16
#define GT_UNKNOWN (-1)

typedef struct {
	int device;		/* number in CUDA or ROCr when nothing is hidden */
	int minor;		/* of its device file, or GT_UNKNOWN */
	int numa;		/* or GT_UNKNOWN */
	const char *nics;	/* the nearest, by comma; "" when none is nearer */
} gt_gpu_t;

typedef struct {
	int number;
	const char *cpus;	/* a list; "" when not known */
	long memory_mb;		/* or GT_UNKNOWN */
} gt_numa_t;

typedef struct {
	const char *name;
	int order[GT_GPUS];	/* of all GPUs; for sets without a row */
	char *rows, *rows_end;	/* lines "MASK ORDER", masks ascending, NUL-terminated */
} gt_pattern_t;

typedef struct {
	char *text;
	const char *machine;
	bool amd;
	int gpus, numas, patterns;
	gt_gpu_t gpu[GT_GPUS];	/* by Slurm's index */
	gt_numa_t numa[GT_NUMA];
	gt_pattern_t pattern[GT_PATTERNS];
} gt_table_t;

/*
 * Reads a table, to be freed by gt_table_free() in any case.
 * RET false with an empty table and one sentence in wrong[GT_NOTE] when it is not good
 */
extern bool gt_table_load(gt_table_t *table, const char *path, char *wrong);

/* The same from memory: `text` (malloced, `len` bytes and a NUL) becomes the table's. */
extern bool gt_table_parse(gt_table_t *table, const char *name, char *text, size_t len,
			   char *wrong);

extern void gt_table_free(gt_table_t *table);

/* CRC-32 (IEEE 802.3, as zlib's crc32 and gzip have it). */
extern uint32_t gt_crc32(const char *text, size_t len);

extern const gt_pattern_t *gt_table_pattern(const gt_table_t *table, const char *name);
extern const gt_numa_t *gt_table_numa(const gt_table_t *table, int number);
