/* GPUs of a node and GPU requests of a job, as masks. */
#pragma once

#include "compat.h"

#define GT_GPUS_MAX 64		/* bits of a mask */

/* RET true for the GRES "gpu"; for list_find_first() */
extern int gt_is_gpu(void *item, void *key);

/* The GPU record of node `index`, or NULL */
extern gres_node_state_t *gt_node_gpus(int index);

/*
 * RET true if this node's GPUs can be chosen one by one: devices with files,
 * one type, no MIG slices, at most 64, and counts that agree with the bits.
 */
extern bool gt_node_is_plain(int index);

/* GPUs on the node, and those of the job's type that nobody uses */
extern uint32_t gt_node_total(int index);
extern uint64_t gt_node_free(int index, const gres_job_state_t *request);

/* The job's only GPU request; NULL if none, several, or shared ones (mps) */
extern gres_job_state_t *gt_job_gpus(const job_record_t *job);

/* GPUs that the last selection chose on a node for the request */
extern uint64_t gt_selected(const gres_job_state_t *request, int index);

extern uint64_t gt_mask(bitstr_t *bits);
