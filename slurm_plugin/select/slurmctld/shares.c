#include "shares.h"

extern bool gt_shares_by_parent(void)
{
	return GT_COUNTS_SHARES &&
	       !(slurm_conf.select_type_param & GT_LEAST_LOADED_SHARES);
}

static int is_named(void *item, void *key)
{
	return !xstrcmp(((gres_state_t *) item)->gres_name, key);
}

/* RET true if bit and count i of the record are those of GPU i, for all of so many */
static bool are_by_gpu(const gres_node_state_t *shares, int64_t total)
{
	if (!shares->gres_bit_alloc || shares->no_consume ||
	    bit_size(shares->gres_bit_alloc) != total ||
	    shares->topo_cnt != total || !shares->topo_gres_bitmap ||
	    !shares->topo_gres_cnt_avail || !shares->topo_gres_cnt_alloc)
		return false;
	for (int i = 0; i < total; i++)
		if (!shares->topo_gres_bitmap[i] ||
		    bit_size(shares->topo_gres_bitmap[i]) != total ||
		    bit_set_count(shares->topo_gres_bitmap[i]) != 1 ||
		    !bit_test(shares->topo_gres_bitmap[i], i) ||
		    shares->topo_gres_cnt_alloc[i] >
		    shares->topo_gres_cnt_avail[i])
			return false;
	return true;
}

/* RET true if the job may have shares of GPU i, as _build_sock_gres_by_topo() decides it */
static bool may_share(const gres_state_t *found, const gres_node_state_t *gpus,
		      const gres_job_state_t *request, int i)
{
	const gres_node_state_t *shares = found->gres_data;

	if (bit_test(gpus->gres_bit_alloc, i) ||
	    (request->type_name && shares->topo_type_id &&
	     shares->topo_type_id[i] != request->type_id))
		return false;
	/* all shares of the node that are in use are of one GPU: the default of MPS */
	return !(found->config_flags & GRES_CONF_ONE_SHARING) ||
	       !shares->gres_cnt_alloc || shares->topo_gres_cnt_alloc[i];
}

extern bool gt_node_shares(int index, const gres_state_t *request,
			   gt_shares_t *shares)
{
	node_record_t *node = node_record_table_ptr[index];
	const gres_node_state_t *gpus = gt_node_gpus(index), *counts;
	gres_state_t *found;

	if (!gt_node_is_plain(index) || gt_node_is_sliced(index) ||
	    !(found = list_find_first(node->gres_list, is_named,
				      request->gres_name)) ||
	    !(counts = found->gres_data) || GT_SHARED(gpus) != counts ||
	    !are_by_gpu(counts, bit_size(gpus->gres_bit_alloc)))
		return false;
	shares->total = gt_node_total(index);
	shares->idle = gt_node_free(index, NULL);
	for (uint32_t i = 0; i < shares->total; i++)
		shares->left[i] = may_share(found, gpus, request->gres_data,
					    i) ?
			counts->topo_gres_cnt_avail[i] -
			counts->topo_gres_cnt_alloc[i] : 0;
	return true;
}

extern uint64_t gt_shares_fit(const gt_shares_t *shares, uint64_t count)
{
	uint64_t fit = 0;

	for (uint32_t i = 0; i < shares->total; i++)
		if (shares->left[i] && shares->left[i] >= count)
			fit |= 1ULL << i;
	return fit;
}

/* ------------------------------------------------------------ the question */

/*
 * A question tells of each GPU of a node, which takes the engine some 8 us a node: it is told
 * those that come first by its own rule, before links and neighbours, which it knows alone.
 */
#define MOST_NODES 16

typedef struct {
	uint64_t rank;		/* the smaller one goes first */
	int index;
} ranked_t;

/* By weight; a shared GPU before one to begin, on a node in use; full GPUs and nodes first */
static uint64_t rank_of(const gt_shares_t *shares, uint32_t weight,
			uint64_t fit)
{
	uint64_t begun = fit & ~shares->idle, left = UINT16_MAX;
	uint64_t idle = __builtin_popcountll(shares->idle);

	for (uint32_t i = 0; i < shares->total; i++)
		if ((begun ? begun : fit) >> i & 1)
			left = MIN(left, shares->left[i]);
	return (uint64_t) weight << 25 | (uint64_t) !begun << 24 |
	       (uint64_t) (!begun && idle == shares->total) << 23 |
	       left << 7 | idle;
}

/* The place of a new one among so many in order; the last one makes room for it */
static int insert(ranked_t *first, int count, ranked_t one)
{
	int at = MIN(count, MOST_NODES - 1);

	if (count == MOST_NODES && first[at].rank <= one.rank)
		return count;
	for (; at > 0 && first[at - 1].rank > one.rank; at--)
		first[at] = first[at - 1];
	first[at] = one;
	return MIN(count + 1, MOST_NODES);
}

static void line_node(gt_line_t *line, const gt_shares_t *shares, int index,
		      uint64_t count, uint64_t own)
{
	const node_record_t *node = node_record_table_ptr[index];
	gt_candidate_t candidate = {
		.name = node->name,
		.total = shares->total,
		.free = gt_shares_fit(shares, count),
		.own = own,
		.weight = node->config_ptr->weight,
		.shares = shares,
	};

	gt_line_candidate(line, &candidate);
}

extern void gt_shares_line_own(gt_line_t *line, const gres_state_t *request,
			       int index)
{
	gt_shares_t shares;

	if (gt_node_shares(index, request, &shares))
		line_node(line, &shares, index,
			  gt_selected_count(request->gres_data, index),
			  gt_selected(request->gres_data, index));
}

extern void gt_shares_line_others(gt_line_t *line, const gres_state_t *request,
				  uint64_t count, bitstr_t *nodes,
				  bitstr_t *told)
{
	ranked_t first[MOST_NODES];
	gt_shares_t shares;
	uint64_t fit;
	int found = 0;

	for (int i = 0; next_node_bitmap(nodes, &i); i++)
		if (gt_node_shares(i, request, &shares) &&
		    (fit = gt_shares_fit(&shares, count)))
			found = insert(first, found, (ranked_t) {
				rank_of(&shares, node_record_table_ptr[i]->
					config_ptr->weight, fit), i });
	for (int at = 0; at < found; at++) {
		if (!gt_node_shares(first[at].index, request, &shares))
			continue;
		line_node(line, &shares, first[at].index, count, 0);
		bit_set(told, first[at].index);
	}
}
