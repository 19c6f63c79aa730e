/*
 * The plugin's own copy of what nodes have free, and what of it the engine knows: questions
 * then name what changed instead of every node. slurmctld's threads change it one at a time,
 * under their node write lock; the sender's thread (sender.h) takes copies. No Slurm header.
 */
#pragma once

#include <pthread.h>

#include "table.h"

#define GT_CHANGED_MAX 512	/* nodes that one question tells of */

typedef struct {
	pthread_mutex_t lock;
	gt_table_t *table;	/* NULL: never built */
	uint64_t *free;		/* GPUs, by node */
	uint64_t digest;	/* of these */
	/* since the last question that was answered, or the last copy */
	uint32_t changed[GT_CHANGED_MAX];
	uint32_t changed_count;
	uint64_t *is_changed;	/* a bit for each node */
	bool stale;		/* must be built before it is used */
	bool wanted;		/* the engine must get the table */
	uint64_t known;		/* number of the table that the engine has; 0: none */
	uint64_t taken;		/* how many tables an engine has taken */
} gt_mirror_t;

/* Without a table, stale */
extern void gt_mirror_init(gt_mirror_t *mirror);

/* Writes into *node what the node at this place of Slurm's table shows. */
typedef void (*gt_look_t)(uint32_t index, gt_node_t *node);

/*
 * Looks at every node. The table is a new one if anything but free GPUs differs, or if
 * `renew` is set. RET false without memory: then it stays stale.
 */
extern bool gt_mirror_build(gt_mirror_t *mirror, uint32_t count, gt_look_t look,
			    bool renew);

/* It is no longer kept: stale until it is built again. */
extern void gt_mirror_forget(gt_mirror_t *mirror);

/* RET how many nodes it has; 0 if it is stale */
extern uint32_t gt_mirror_count(gt_mirror_t *mirror);

/*
 * A look at a node: takes over its free GPUs. If anything else differs from the table, or
 * there is no such row, the mirror is stale.
 */
extern void gt_mirror_look(gt_mirror_t *mirror, uint32_t index,
			   const gt_node_t *node);

/* RET true if the engine has the table, and a question can tell all that changed */
extern bool gt_mirror_known(gt_mirror_t *mirror);

/* Adds table=, state= and changed= to a question. */
extern void gt_mirror_write(gt_mirror_t *mirror, gt_line_t *line);

/* A question with these keys was answered; `resync`: the engine has another table or state. */
extern void gt_mirror_answered(gt_mirror_t *mirror, bool resync);

/* ------------------------------------------------------------- the sender */

typedef struct {
	gt_table_t *table;
	uint64_t *free;
	uint64_t digest;
} gt_copy_t;

/* RET the number of the table; 0 without one */
extern uint64_t gt_mirror_number(gt_mirror_t *mirror);

/*
 * RET true with a copy, to be given back, if the engine must get the table. What changes from
 * now on is told by questions.
 */
extern bool gt_mirror_copy(gt_mirror_t *mirror, gt_copy_t *copy);
extern void gt_mirror_give_back(gt_mirror_t *mirror, gt_copy_t *copy);

/* RET how many tables an engine has taken so far: with each one it is there, whatever was before */
extern uint64_t gt_mirror_taken(gt_mirror_t *mirror);

/* The engine has what was copied. */
extern void gt_mirror_sent(gt_mirror_t *mirror, const gt_copy_t *copy);

/* The engine has no table (any more). */
extern void gt_mirror_lost(gt_mirror_t *mirror);
