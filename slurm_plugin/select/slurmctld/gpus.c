#include "gpus.h"

#include "part.h"

extern int gt_is_gpu(void *item, void *key)
{
	(void) key;
	return !xstrcmp(((gres_state_t *) item)->gres_name, "gpu");
}

extern int gt_is_shares(void *item, void *key)
{
	const char *name = ((gres_state_t *) item)->gres_name;

	(void) key;
	return !xstrcmp(name, "shard") || !xstrcmp(name, "mps");
}

extern gres_node_state_t *gt_node_gpus(int index)
{
	node_record_t *node = node_record_table_ptr[index];
	gres_state_t *found;

	if (!node || !node->gres_list ||
	    !(found = list_find_first(node->gres_list, gt_is_gpu, NULL)))
		return NULL;
	return found->gres_data;
}

extern uint64_t gt_mask(bitstr_t *bits)
{
	uint64_t mask = 0;
	int64_t size = bits ? bit_size(bits) : 0;

	for (int64_t i = 0; i < size && i < GT_GPUS_MAX; i++)
		if (bit_test(bits, i))
			mask |= 1ULL << i;
	return mask;
}

/* RET how many of the node's types are whole GPUs */
static int whole_types(const gres_node_state_t *gpus)
{
	int count = 0;

	for (int i = 0; i < gpus->type_cnt; i++)
		count += !gt_is_part(gpus->type_name[i]);
	return count;
}

static bool is_sliced(const gres_node_state_t *gpus)
{
	for (int i = 0; i < gpus->type_cnt; i++)
		if (gt_is_part(gpus->type_name[i]))
			return true;
	for (int i = 0; i < gpus->topo_cnt; i++)
		if (gpus->topo_type_name && gt_is_part(gpus->topo_type_name[i]))
			return true;
	return false;
}

/*
 * RET true if all maps have a bit for each GPU. A node whose GPUs were changed has maps of
 * the former ones, saved with slurmctld's state, until it has registered again
 */
static bool maps_agree(const gres_node_state_t *gpus)
{
	int64_t size = bit_size(gpus->gres_bit_alloc);

	for (int i = 0; gpus->topo_gres_bitmap && i < gpus->topo_cnt; i++)
		if (gpus->topo_gres_bitmap[i] &&
		    bit_size(gpus->topo_gres_bitmap[i]) != size)
			return false;
	return true;
}

static bool is_plain(const gres_node_state_t *gpus)
{
	return gpus && gpus->gres_bit_alloc && !gpus->no_consume && maps_agree(gpus) &&
	       bit_size(gpus->gres_bit_alloc) <= GT_GPUS_MAX &&
	       (uint64_t) bit_size(gpus->gres_bit_alloc) ==
	       gpus->gres_cnt_avail &&
	       (uint64_t) bit_set_count(gpus->gres_bit_alloc) ==
	       gpus->gres_cnt_alloc &&
	       whole_types(gpus) <= 1;
}

extern bool gt_node_is_plain(int index)
{
	return is_plain(gt_node_gpus(index));
}

static uint32_t total_of(const gres_node_state_t *gpus)
{
	return (uint32_t) bit_size(gpus->gres_bit_alloc);
}

extern bool gt_node_is_sliced(int index)
{
	const gres_node_state_t *gpus = gt_node_gpus(index);

	return gpus && is_sliced(gpus);
}

extern uint32_t gt_node_total(int index)
{
	return total_of(gt_node_gpus(index));
}

/* GPUs that nobody uses */
static uint64_t idle(const gres_node_state_t *gpus)
{
	const gres_node_state_t *shared = GT_SHARED(gpus);
	uint32_t total = total_of(gpus);
	uint64_t all = total >= GT_GPUS_MAX ? UINT64_MAX : (1ULL << total) - 1;
	uint64_t busy = gt_mask(gpus->gres_bit_alloc);

	if (shared)
		busy |= gt_mask(shared->gres_bit_alloc);
	return all & ~busy;
}

/* RET the type of the node's whole GPUs, else of its first slices, NULL without any */
static const char *first_type(const gres_node_state_t *gpus)
{
	for (int i = 0; i < gpus->type_cnt; i++)
		if (!gt_is_part(gpus->type_name[i]))
			return gpus->type_name[i];
	return gpus->type_cnt ? gpus->type_name[0] : NULL;
}

extern bool gt_node_read(int index, gt_node_t *node)
{
	static char deleted[16];
	node_record_t *record = node_record_table_ptr[index];
	gres_node_state_t *gpus;

	*node = (gt_node_t) { .name = deleted, .weight = 1 };
	if (!record) {	/* a dynamic node that was deleted; no node is called so */
		snprintf(deleted, sizeof(deleted), ".%d", index);
		return false;
	}
	node->name = record->name;
	node->weight = record->config_ptr->weight;
	if (!(gpus = gt_node_gpus(index)))
		return false;
	node->type = first_type(gpus);
	if (is_plain(gpus)) {
		node->total = total_of(gpus);
		node->free = idle(gpus);
		return false;
	}
	/* as slurm.conf has it, so that the registration changes nothing but free GPUs */
	if (gpus->gres_cnt_config != NO_VAL64)
		node->total = (uint32_t) MIN(gpus->gres_cnt_config, GT_GPUS_MAX);
	return node->total && (!gpus->gres_bit_alloc || !maps_agree(gpus));
}

/* GPUs of the type the job asks for; all if it names none */
static uint64_t right_type(const gres_node_state_t *gpus,
			   const gres_job_state_t *request)
{
	uint64_t mask = 0;

	/* without Cores, Links and Type in gres.conf all of a node's GPUs are alike to Slurm */
	if (!request->type_name || !gpus->topo_cnt)
		return UINT64_MAX;
	for (int i = 0; i < gpus->topo_cnt; i++)
		if (gpus->topo_type_id[i] == request->type_id)
			mask |= gt_mask(gpus->topo_gres_bitmap[i]);
	return mask;
}

extern uint64_t gt_node_free(int index, const gres_job_state_t *request)
{
	const gres_node_state_t *gpus = gt_node_gpus(index);

	return idle(gpus) & (request ? right_type(gpus, request) : UINT64_MAX);
}

typedef struct {
	gres_state_t *found;
	int count;
} requests_t;

static int note_request(void *item, void *arg)
{
	requests_t *requests = arg;

	if (gt_is_gpu(item, NULL) || gt_is_shares(item, NULL)) {
		requests->found = item;
		requests->count++;
	}
	return 0;
}

extern gres_state_t *gt_job_request(const job_record_t *job)
{
	requests_t requests = { 0 };

	if (job->gres_list_req)
		list_for_each(job->gres_list_req, note_request, &requests);
	return requests.count == 1 ? requests.found : NULL;
}

/*
 * RET the node's GPU record if gres.conf has no Cores, Links and Type there (`File=` alone).
 * cons_tres then chooses how many of its GPUs a job gets, and not which: Slurm takes the
 * first free ones when the job begins, or those that stand in gres_bit_select
 */
static gres_node_state_t *counted_alone(int index)
{
	gres_node_state_t *gpus = gt_node_gpus(index);

	return gpus && !gpus->topo_cnt && !GT_SHARED(gpus) && is_plain(gpus) ?
		gpus : NULL;
}

static bool is_beyond(const gres_job_state_t *request, int index)
{
	return (uint32_t) index >= request->total_node_cnt;
}

extern uint64_t gt_selected_count(const gres_job_state_t *request, int index)
{
	return request->gres_cnt_node_select && !is_beyond(request, index) ?
		request->gres_cnt_node_select[index] : 0;
}

extern uint64_t gt_selected(const gres_job_state_t *request, int index)
{
	const gres_node_state_t *gpus;
	uint64_t first = 0, free;

	if (is_beyond(request, index))
		return 0;
	if (request->gres_bit_select && request->gres_bit_select[index])
		return gt_mask(request->gres_bit_select[index]);
	if (!(gpus = counted_alone(index)))
		return 0;
	free = idle(gpus);
	for (uint64_t left = gt_selected_count(request, index); left && free; left--) {
		first |= free & -free;
		free &= free - 1;
	}
	return first;
}

static bool ever_chosen;	/* there may be bits of ours in a job's record */

extern void gt_choose_bits(gres_job_state_t *request, const gt_place_t *place)
{
	gres_node_state_t *gpus = counted_alone(place->index);

	if (!gpus || gt_selected_count(request, place->index) !=
	    (uint64_t) __builtin_popcountll(place->gpus))
		return;
	if (!request->gres_bit_select)
		request->gres_bit_select = xcalloc(request->total_node_cnt,
						   sizeof(bitstr_t *));
	ever_chosen = true;
	FREE_NULL_BITMAP(request->gres_bit_select[place->index]);
	request->gres_bit_select[place->index] = bit_alloc(total_of(gpus));
	for (int bit = 0; bit < (int) total_of(gpus); bit++)
		if (place->gpus >> bit & 1)
			bit_set(request->gres_bit_select[place->index], bit);
}

extern void gt_forget_bits(const job_record_t *job)
{
	gres_state_t *found = ever_chosen ? gt_job_request(job) : NULL;
	gres_job_state_t *request = found && gt_is_gpu(found, NULL) ?
		found->gres_data : NULL;
	gres_node_state_t *gpus;

	if (!request || xsize(request) != sizeof(*request) ||
	    !request->gres_bit_select)
		return;
	for (int i = 0; i < (int) request->total_node_cnt &&
	     i < node_record_count; i++)
		if (request->gres_bit_select[i] && (gpus = gt_node_gpus(i)) &&
		    !gpus->topo_cnt && !GT_SHARED(gpus))
			FREE_NULL_BITMAP(request->gres_bit_select[i]);
}
