/*
 * All nodes as the engine learns of them, apart from their free GPUs, and the lines that tell
 * it (docs/protocol.md, `nodes`). A table is never changed once it is filled. No Slurm header.
 */
#pragma once

#include "protocol.h"

/* What a look at a node shows; a name and a type of the caller's */
typedef struct {
	const char *name;
	const char *type;	/* "" or NULL: none */
	uint32_t total;		/* GPUs, at most 64 */
	uint32_t weight;	/* Slurm's node Weight */
	uint64_t free;		/* GPUs that nobody uses and that may be chosen one by one */
} gt_node_t;

typedef struct {
	char *name;
	char *type;		/* that of the row before, if it is the same text */
	uint32_t total, weight;
} gt_row_t;

typedef struct {
	uint64_t number;	/* random, never 0 */
	uint32_t count;
	int references;		/* not atomic: see mirror.c */
	gt_row_t rows[];	/* in Slurm's order */
} gt_table_t;

/* RET a table of `count` empty rows and one reference, NULL without memory */
extern gt_table_t *gt_table_new(uint32_t count);

/* Fills a row; rows are filled in order. RET false without memory */
extern bool gt_table_fill(gt_table_t *table, uint32_t index,
			  const gt_node_t *node);

/* RET true if the row is what a look at the node shows now, whatever is free */
extern bool gt_table_shows(const gt_table_t *table, uint32_t index,
			   const gt_node_t *node);

extern bool gt_table_equal(const gt_table_t *a, const gt_table_t *b);

extern void gt_table_free(gt_table_t *table);

/* RET the rows that the line which begins with row `first` has: it must not be too long */
extern uint32_t gt_table_rows_of_line(const gt_table_t *table, uint32_t first);

/* RET how many lines the whole table takes */
extern uint32_t gt_table_parts(const gt_table_t *table);

typedef struct {
	uint64_t id;
	uint32_t part, parts;
	uint32_t first, count;	/* rows */
} gt_part_t;

/* `free` has the free GPUs of all rows. Ended by gt_line_end() as every line. */
extern void gt_table_line(gt_line_t *line, const gt_table_t *table,
			  const uint64_t *free, const gt_part_t *part);
