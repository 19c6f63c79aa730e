/*
 * Slurm's internal headers, and the only place where releases differ for us.
 * One source serves 22.05 and every release from 23.11 to 26.05; the plugin is
 * built for exactly one.
 */
#pragma once

#include "config.h"

#include "src/common/slurm_xlator.h"
#include "src/common/bitstring.h"
#include "src/common/job_resources.h"
#include "src/common/list.h"
#include "src/common/log.h"
#include "src/common/node_conf.h"
#include "src/common/read_config.h"
#include "src/common/run_in_daemon.h"
#include "src/common/xmalloc.h"
#include "src/common/xstring.h"
#include "slurm/slurm_version.h"

#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(22, 11, 0)
#include "src/common/gres.h"
#include "src/common/select.h"
#else
#include "src/interfaces/gres.h"
#include "src/interfaces/select.h"
#endif
#include "src/slurmctld/job_scheduler.h"
#include "src/slurmctld/slurmctld.h"
#include "src/slurmctld/state_save.h"

#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(22, 11, 0)
#define GT_DECLARED_TO_22_05(X) X(update_node_config)
#else
#define GT_DECLARED_TO_22_05(X)
#endif

/* Those of GT_HOOKED_WHERE_THERE (stock.h) that this release declares */
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(25, 5, 0)
#define GT_DECLARED_WHERE_THERE(X) X(state_save) GT_DECLARED_TO_22_05(X)
#else
#define GT_DECLARED_WHERE_THERE(X)
#endif

/* Of SelectTypeParameters: sockets are taken whole */
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(25, 11, 0)
#define GT_SOCKETS CR_SOCKET
#else
#define GT_SOCKETS SELECT_SOCKET
#endif

/* Since 25.05 this file is the network, whatever TopologyPlugin and topology.conf say. */
static inline bool gt_topology_yaml(void)
{
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(25, 5, 0)
	return false;
#else
	char *path = get_extra_conf_path("topology.yaml");
	bool is_there = !access(path, F_OK);

	xfree(path);
	return is_there;
#endif
}

/* The partition's topology in topology.yaml, or NULL for the default one */
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(25, 5, 0)
#define GT_TOPOLOGY_NAME(job) NULL
#else
#define GT_TOPOLOGY_NAME(job) \
	((job)->part_ptr ? (job)->part_ptr->topology_name : NULL)
#endif

/* What the network's plugin keeps of the job, as X(record, field) */
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(25, 11, 0)
#define GT_NETWORK_OF_JOB(X)
#else
#define GT_NETWORK_OF_JOB(X) X(job, topo_jobinfo)
#endif

/* --segment, and --exclusive=topo as the job's or its partition's */
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(24, 5, 0)
#define GT_SEGMENT(job) 0
#define GT_WHOLE_TOPOLOGY(job) false
#else
#define GT_SEGMENT(job) ((job)->details->segment_size)
#define GT_WHOLE_TOPOLOGY(job) IS_JOB_WHOLE_TOPO(job)
#endif

/* --spread-segments, --consolidate-segments */
#ifdef SPREAD_SEGMENTS
#define GT_PLACES_SEGMENTS(job) \
	((job)->bit_flags & (SPREAD_SEGMENTS | CONSOLIDATE_SEGMENTS))
#else
#define GT_PLACES_SEGMENTS(job) false
#endif

#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(22, 11, 0)

typedef struct xlist list_t;

/* The last arguments of select_p_job_test() */
#define GT_TEST_TAIL bitstr_t *exc_core_bitmap
#define GT_TEST_TAIL_FIELDS bitstr_t *exc_core_bitmap;
#define GT_TEST_TAIL_INIT .exc_core_bitmap = exc_core_bitmap
#define GT_TEST_TAIL_OF(test) (test)->exc_core_bitmap

/* Here the select plugin does not learn of reserved GRES. */
#define GT_RESERVED_GRES(test) NULL
#define GT_INSIDE_GRES(test) false
#define GT_RESERVATION_GRES(resv) false

/* The GRES record that shares a node's GPUs (mps, shard), if any */
#define GT_SHARED(node_gres) ((node_gres)->alt_gres_ns)

/*
 * The error of a postponed job. In this release every such error keeps jobs of lower
 * priority in the partition from starting for the rest of the pass.
 */
#define GT_POSTPONED ESLURM_NODES_BUSY

static inline node_record_t *next_node_bitmap(bitstr_t *nodes, int *i)
{
	for (; *i < bit_size(nodes); (*i)++)
		if (bit_test(nodes, *i))
			return node_record_table_ptr[*i];
	return NULL;
}

#else

#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(24, 11, 0)
/* 23.11 and 24.05: what a will-run found is not handed back */
#define GT_TEST_TAIL resv_exc_t *resv_exc_ptr
#define GT_TEST_TAIL_FIELDS resv_exc_t *resv_exc_ptr;
#define GT_TEST_TAIL_INIT .resv_exc_ptr = resv_exc_ptr
#define GT_TEST_TAIL_OF(test) (test)->resv_exc_ptr
#else
#define GT_TEST_TAIL resv_exc_t *resv_exc_ptr, will_run_data_t *will_run_ptr
#define GT_TEST_TAIL_FIELDS \
	resv_exc_t *resv_exc_ptr; will_run_data_t *will_run_ptr;
#define GT_TEST_TAIL_INIT \
	.resv_exc_ptr = resv_exc_ptr, .will_run_ptr = will_run_ptr
#define GT_TEST_TAIL_OF(test) (test)->resv_exc_ptr, (test)->will_run_ptr
#endif

/* GRES that reservations keep from the job, anywhere in the cluster, or NULL */
#define GT_RESERVED_GRES(test) \
	((test)->resv_exc_ptr ? (test)->resv_exc_ptr->gres_list_exc : NULL)
/* RET true if the job's own reservation allows it some GRES only */
#define GT_INSIDE_GRES(test) \
	((test)->resv_exc_ptr && (test)->resv_exc_ptr->gres_list_inc)
#define GT_RESERVATION_GRES(resv) ((resv)->gres_list_alloc)

#define GT_SHARED(node_gres) \
	((node_gres)->alt_gres ? \
	 (gres_node_state_t *) (node_gres)->alt_gres->gres_data : NULL)

/* Keeps the job pending without stopping its partition. */
#define GT_POSTPONED ESLURM_LICENSES_UNAVAILABLE

#endif

/*
 * Shards and MPS. 22.05 does not keep how many of a job's are of which GPU, so there the GPU
 * is Slurm's choice.
 */
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(22, 11, 0)
#define GT_COUNTS_SHARES false
#define GT_LEAST_LOADED_SHARES 0
#elif defined(LL_SHARED_GRES)
#define GT_COUNTS_SHARES true
#define GT_LEAST_LOADED_SHARES LL_SHARED_GRES
#else
#define GT_COUNTS_SHARES true
#define GT_LEAST_LOADED_SHARES SELECT_LL_SHARED_GRES
#endif

/* Nodes that power saving has switched off */
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(24, 5, 0)
#define GT_POWERED_DOWN power_node_bitmap
#else
#define GT_POWERED_DOWN power_down_node_bitmap
#endif

/* SelectTypeParameters=CR_LLN; later releases renamed the constant. */
#ifdef CR_LLN
#define GT_LEAST_LOADED CR_LLN
#else
#define GT_LEAST_LOADED SELECT_LLN
#endif

/*
 * Only slurmctld defines these. Commands on the controller's host load this plugin,
 * too, and must not fail for a missing symbol: check each before use.
 */
extern time_t last_job_update __attribute__((weak));
extern bitstr_t *cg_node_bitmap __attribute__((weak));
extern bitstr_t *up_node_bitmap __attribute__((weak));
extern bitstr_t *GT_POWERED_DOWN __attribute__((weak));
extern bitstr_t *booting_node_bitmap __attribute__((weak));
extern list_t *job_list __attribute__((weak));
extern list_t *resv_list __attribute__((weak));
extern slurmctld_config_t slurmctld_config __attribute__((weak));
extern job_record_t *find_job_record(uint32_t job_id) __attribute__((weak));
extern void queue_job_scheduler(void) __attribute__((weak));
extern void schedule(bool full_queue) __attribute__((weak));
extern void schedule_job_save(void) __attribute__((weak));
extern uint16_t accounting_enforce __attribute__((weak));
extern int slurm_mcs_get_select(job_record_t *job) __attribute__((weak));
extern int acct_policy_handle_accrue_time(job_record_t *job, bool locked)
	__attribute__((weak));
