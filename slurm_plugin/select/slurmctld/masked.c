#include "masked.h"

#include "cores.h"

/* What a node's record held before its GPUs were marked as taken */
typedef struct {
	int index;
	bitstr_t *bits;
	uint64_t count;
	uint64_t *by_topo;
	uint64_t *by_type;
} saved_t;

static uint64_t *copy_counts(const uint64_t *counts, uint16_t n)
{
	uint64_t *copy;

	if (!counts || !n)
		return NULL;
	copy = xcalloc(n, sizeof(*copy));
	memcpy(copy, counts, n * sizeof(*copy));
	return copy;
}

static void save(saved_t *saved, int index, const gres_node_state_t *gpus)
{
	saved->index = index;
	saved->bits = bit_copy(gpus->gres_bit_alloc);
	saved->count = gpus->gres_cnt_alloc;
	saved->by_topo = copy_counts(gpus->topo_gres_cnt_alloc, gpus->topo_cnt);
	saved->by_type = copy_counts(gpus->type_cnt_alloc, gpus->type_cnt);
}

static void count_taken(gres_node_state_t *gpus, int bit)
{
	gpus->gres_cnt_alloc++;
	for (int t = 0; gpus->topo_gres_cnt_alloc && t < gpus->topo_cnt; t++) {
		if (!gpus->topo_gres_bitmap[t] ||
		    !bit_test(gpus->topo_gres_bitmap[t], bit))
			continue;
		gpus->topo_gres_cnt_alloc[t]++;
		for (int k = 0; gpus->type_cnt_alloc && k < gpus->type_cnt; k++)
			if (gpus->topo_type_id[t] == gpus->type_id[k])
				gpus->type_cnt_alloc[k]++;
	}
}

static void mask(saved_t *saved, const gt_place_t *place)
{
	gres_node_state_t *gpus = gt_node_gpus(place->index);
	int size = (int) bit_size(gpus->gres_bit_alloc);

	save(saved, place->index, gpus);
	for (int bit = 0; bit < size; bit++) {
		if (bit_test(gpus->gres_bit_alloc, bit) ||
		    (place->gpus >> bit & 1))
			continue;
		bit_set(gpus->gres_bit_alloc, bit);
		count_taken(gpus, bit);
	}
}

static void unmask(saved_t *saved)
{
	gres_node_state_t *gpus = gt_node_gpus(saved->index);

	bit_copybits(gpus->gres_bit_alloc, saved->bits);
	gpus->gres_cnt_alloc = saved->count;
	if (saved->by_topo)
		memcpy(gpus->topo_gres_cnt_alloc, saved->by_topo,
		       gpus->topo_cnt * sizeof(uint64_t));
	if (saved->by_type)
		memcpy(gpus->type_cnt_alloc, saved->by_type,
		       gpus->type_cnt * sizeof(uint64_t));
	FREE_NULL_BITMAP(saved->bits);
	xfree(saved->by_topo);
	xfree(saved->by_type);
}

static bool selected_exactly(const gt_test_t *test,
			     const gres_job_state_t *gpus,
			     const gt_place_t *places, int count)
{
	job_resources_t *resources = test->job->job_resrcs;

	if (!resources || bit_set_count(resources->node_bitmap) != count)
		return false;
	for (int i = 0; i < count; i++)
		if (!bit_test(resources->node_bitmap, places[i].index) ||
		    gt_selected(gpus, places[i].index) != places[i].gpus)
			return false;
	return true;
}

extern int gt_mask_select(const gt_test_t *test, gres_job_state_t *gpus,
			  const gt_place_t *places, int count)
{
	saved_t *saved = xcalloc(count, sizeof(*saved));
	list_t *preempted = NULL;
	gt_test_t narrow = *test;
	int rc;

	/* the advice is about free GPUs: nobody may be preempted for it */
	narrow.preemptee_candidates = NULL;
	narrow.preemptee_job_list = &preempted;
	free_job_resources(&test->job->job_resrcs);
	gt_forget_bits(test->job);
	bit_clear_all(test->nodes);
	for (int i = 0; i < count; i++) {
		bit_set(test->nodes, places[i].index);
		mask(&saved[i], &places[i]);
	}
	rc = gt_stock_job_test(&narrow);
	for (int i = 0; i < count; i++)
		unmask(&saved[i]);
	xfree(saved);
	FREE_NULL_LIST(preempted);
	for (int i = 0; rc == SLURM_SUCCESS && i < count; i++)
		gt_choose_bits(gpus, &places[i]);
	/* where cores may be shared, other nodes than these may have idle ones */
	if (rc == SLURM_SUCCESS &&
	    (!selected_exactly(test, gpus, places, count) ||
	     gt_shares_cores(test->job)))
		rc = SLURM_ERROR;
	return rc;
}
