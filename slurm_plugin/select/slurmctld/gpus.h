/* GPUs of nodes and GPU requests of jobs as masks. */
#pragma once

#include "protocol.h"
#include "stock.h"
#include "table.h"

/* RET true for the GRES "gpu"; for list_find_first() */
extern int gt_is_gpu(void *item, void *key);

/* RET true for the GRES "shard" and "mps", shares of GPUs; for list_find_first() */
extern int gt_is_shares(void *item, void *key);

/* The GPU record of node `index`, or NULL */
extern gres_node_state_t *gt_node_gpus(int index);

/*
 * RET true if this node's GPUs can be chosen one by one: they have device files, are at
 * most 64 and of one type, MIG slices apart, and counts and bits agree
 */
extern bool gt_node_is_plain(int index);

/* RET true if some of the node's GPUs are MIG slices: of a job's GPUs its type tells which */
extern bool gt_node_is_sliced(int index);

extern uint32_t gt_node_total(int index);

/*
 * What a look at the node shows; its name and type are valid until the next call, or as
 * long as Slurm's record. Free GPUs are those of a plain node alone. RET true if its GPUs
 * are still to come: it has not registered yet
 */
extern bool gt_node_read(int index, gt_node_t *node);

/* GPUs of the job's type (NULL: any) that nobody uses; the node must be plain */
extern uint64_t gt_node_free(int index, const gres_job_state_t *request);

/* The job's only request for GPUs or shares of them; NULL if none or several */
extern gres_state_t *gt_job_request(const job_record_t *job);

/*
 * GPUs that the last selection chose on a node for the request; those that Slurm will take
 * where gres.conf says `File=` alone, so that cons_tres chose how many, and not which
 */
extern uint64_t gt_selected(const gres_job_state_t *request, int index);

/* How many GPUs, or shares of them, it chose there */
extern uint64_t gt_selected_count(const gres_job_state_t *request, int index);

/*
 * Takes back what an earlier selection of ours said of such nodes, which cons_tres leaves
 * as it is: before each selection
 */
extern void gt_forget_bits(const job_record_t *job);

extern uint64_t gt_mask(bitstr_t *bits);

typedef struct {
	int index;		/* of the node in Slurm's node table */
	uint64_t gpus;
} gt_place_t;

/* Says which GPUs of such a node the job is to get; of other nodes cons_tres said it */
extern void gt_choose_bits(gres_job_state_t *request, const gt_place_t *place);
