/*
 * Shards and MPS: shares of GPUs, which Slurm counts by the GPU (the parent) they are of.
 * As Slurm keeps them, a parent is given to jobs of shares or to one job of GPUs, and the
 * bits of both records are the node's GPUs in the same order.
 */
#pragma once

#include "gpus.h"
#include "protocol.h"

/*
 * RET true if Slurm lets the parent be chosen: it counts shares by it, and is not told to
 * prefer the least loaded (SelectTypeParameters=LL_SHARED_GRES)
 */
extern bool gt_shares_by_parent(void);

/* RET false if the node's shares are not counted one GPU by one */
extern bool gt_node_shares(int index, const gres_state_t *request,
			   gt_shares_t *shares);

/* GPUs with room for so many */
extern uint64_t gt_shares_fit(const gt_shares_t *shares, uint64_t count);

/* Adds a node to a question, which Slurm chose for the request; gt_node_shares() knows it */
extern void gt_shares_line_own(gt_line_t *line, const gres_state_t *request,
			       int index);

/*
 * Adds those of the nodes that have room for so many shares on one GPU, 16 at most, and to
 * `told`: the lightest, and of these first those where such a GPU is shared already
 */
extern void gt_shares_line_others(gt_line_t *line, const gres_state_t *request,
				  uint64_t count, bitstr_t *nodes,
				  bitstr_t *told);
