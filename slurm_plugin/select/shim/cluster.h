/*
 * Keeps the mirror (mirror.h) of what Slurm's nodes have free, without looking at all of them
 * for each question. Every call is under slurmctld's node write lock.
 */
#pragma once

#include "protocol.h"
#include "stock.h"

/* Slurm made its node table anew: so is ours, as soon as all is in place. */
extern void gt_cluster_renew(void);

/* Looks at every node: Slurm has just given all of its nodes' GPUs out anew. */
extern void gt_cluster_build(void);

/* A node's GPUs may have changed. */
extern void gt_cluster_node(int index);

/* The GPUs of a job's nodes may have changed. */
extern void gt_cluster_job(const job_record_t *job);

/*
 * Looks at nodes that Slurm chose, came back, have registered since, or are next in turn.
 * RET true if the engine has the table, so that a question may name nodes by their places
 */
extern bool gt_cluster_is_known(bitstr_t *own, bitstr_t *offered);

/* Adds the table's number, what changed in it, and the other nodes that the job may use. */
extern void gt_cluster_write(gt_line_t *line, bitstr_t *others);
