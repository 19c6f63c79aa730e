#include "gpus.h"

#include "mig.h"

extern int gt_is_gpu(void *item, void *key)
{
	(void) key;
	return !xstrcmp(((gres_state_t *) item)->gres_name, "gpu");
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

static bool one_type(const gres_node_state_t *gpus)
{
	for (int i = 0; i < gpus->type_cnt; i++)
		if (gt_is_mig(gpus->type_name[i]))
			return false;
	for (int i = 0; i < gpus->topo_cnt; i++)
		if (gpus->topo_type_name && gt_is_mig(gpus->topo_type_name[i]))
			return false;
	return gpus->type_cnt <= 1;
}

extern bool gt_node_is_plain(int index)
{
	gres_node_state_t *gpus = gt_node_gpus(index);

	return gpus && gpus->gres_bit_alloc && !gpus->no_consume &&
	       bit_size(gpus->gres_bit_alloc) <= GT_GPUS_MAX &&
	       (uint64_t) bit_size(gpus->gres_bit_alloc) ==
	       gpus->gres_cnt_avail &&
	       (uint64_t) bit_set_count(gpus->gres_bit_alloc) ==
	       gpus->gres_cnt_alloc &&
	       one_type(gpus);
}

extern uint32_t gt_node_total(int index)
{
	return (uint32_t) bit_size(gt_node_gpus(index)->gres_bit_alloc);
}

/* GPUs of the type the job asks for; all if it names none */
static uint64_t right_type(const gres_node_state_t *gpus,
			   const gres_job_state_t *request)
{
	uint64_t mask = 0;

	if (!request->type_name)
		return UINT64_MAX;
	for (int i = 0; i < gpus->topo_cnt; i++)
		if (gpus->topo_type_id[i] == request->type_id)
			mask |= gt_mask(gpus->topo_gres_bitmap[i]);
	return mask;
}

extern uint64_t gt_node_free(int index, const gres_job_state_t *request)
{
	gres_node_state_t *gpus = gt_node_gpus(index);
	gres_node_state_t *shared = GT_SHARED(gpus);
	uint32_t total = gt_node_total(index);
	uint64_t all = total >= GT_GPUS_MAX ? UINT64_MAX : (1ULL << total) - 1;
	uint64_t busy = gt_mask(gpus->gres_bit_alloc);

	if (shared)
		busy |= gt_mask(shared->gres_bit_alloc);
	return all & ~busy & right_type(gpus, request);
}

typedef struct {
	gres_job_state_t *gpus;
	int count;
	bool shared;
} requests_t;

static int note_request(void *item, void *arg)
{
	gres_state_t *gres = item;
	requests_t *requests = arg;

	if (!xstrcmp(gres->gres_name, "gpu")) {
		requests->gpus = gres->gres_data;
		requests->count++;
	} else if (!xstrcmp(gres->gres_name, "mps") ||
		   !xstrcmp(gres->gres_name, "shard")) {
		requests->shared = true;
	}
	return 0;
}

extern gres_job_state_t *gt_job_gpus(const job_record_t *job)
{
	requests_t requests = { 0 };

	if (!job->gres_list_req)
		return NULL;
	list_for_each(job->gres_list_req, note_request, &requests);
	if (requests.count != 1 || requests.shared ||
	    gt_is_mig(requests.gpus->type_name))
		return NULL;
	return requests.gpus;
}

extern uint64_t gt_selected(const gres_job_state_t *request, int index)
{
	if (!request->gres_bit_select ||
	    (uint32_t) index >= request->total_node_cnt)
		return 0;
	return gt_mask(request->gres_bit_select[index]);
}
