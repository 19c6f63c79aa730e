/* Which nodes that Slurm did not choose a job may have: Slurm's own rules about them. */
#pragma once

#include "stock.h"

/*
 * RET what Slurm itself weighs when it chooses nodes, as the engine is told: "yaml", "tree",
 * "block"; "" for nothing, NULL for what the engine does not know
 */
extern const char *gt_weighed_topology(void);

/* RET true if only the nodes that Slurm chose may be used */
extern bool gt_keeps_nodes(const gt_test_t *test);

/*
 * Slurm sorts nodes by sched_weight. cons_tres uses its low byte while it selects. The
 * next 32 bits are the node's Weight. The highest bits mark nodes to be taken last:
 * those that must boot first, and those outside of the job's flexible reservation.
 */
extern uint64_t gt_weight(const node_record_t *node);

extern uint64_t gt_highest_weight(bitstr_t *nodes);

/*
 * RET true if the order of the nodes offered is that of their Weights alone. Which nodes
 * must boot for the job, or are outside of its reservation, stands nowhere else.
 */
extern bool gt_goes_by_weight(const job_record_t *job, bitstr_t *own);

/*
 * RET of the nodes offered those that the job could use beside its own, which Slurm chose; may
 * be empty. Not by_weight: what is heavier than this is left out here
 */
extern bitstr_t *gt_other_nodes(const gt_test_t *test, bitstr_t *offered,
				bitstr_t *own, uint64_t heaviest, bool by_weight);
