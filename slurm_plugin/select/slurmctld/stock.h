/* Slurm's own select/cons_tres, which is found behind us in PluginDir. */
#pragma once

#include "compat.h"

#define GT_PLUGIN_NAME "GPU topology over select/cons_tres"

/*
 * Every select_p_* function of the supported releases that is handed to the
 * stock plugin unchanged. A release that lacks one never calls it.
 * `make check-symbols` compares this with the list in Slurm's source.
 */
#define GT_FORWARDS(X) \
	X(state_restore) X(job_init) X(job_ready) \
	X(job_mem_reduce) X(job_signal) X(step_pick_nodes) X(step_start) X(step_finish) \
	X(select_nodeinfo_pack) X(select_nodeinfo_unpack) \
	X(select_nodeinfo_alloc) X(select_nodeinfo_free) \
	X(select_nodeinfo_set_all) X(select_nodeinfo_get) \
	X(select_jobinfo_alloc) X(select_jobinfo_free) X(select_jobinfo_set) \
	X(select_jobinfo_get) X(select_jobinfo_copy) X(select_jobinfo_pack) \
	X(select_jobinfo_unpack) X(select_jobinfo_sprint) \
	X(select_jobinfo_xstrdup) X(get_info_from_plugin) \
	X(resv_test)

/* Those for which we do something before or after the stock plugin does its work */
#define GT_HOOKED(X) \
	X(node_init) X(reconfigure) X(job_begin) X(job_fini) \
	X(select_nodeinfo_set) X(job_expand) X(job_resized) X(job_suspend) \
	X(job_resume)

/* The same; releases from 25.05 on lack state_save, those from 22.11 on update_node_config */
#define GT_HOOKED_WHERE_THERE(X) X(state_save) X(update_node_config)

/*
 * All functions that are handed on unchanged take at most six integer or pointer arguments,
 * which the x86-64 and AArch64 ABIs pass in registers: one type fits them all.
 */
typedef long (*gt_forward_t)(long, long, long, long, long, long);

typedef struct {
	void *handle;
	int64_t spent_us;	/* in its selections, in all */
	/* with the arguments that this release's select_g_NAME declares */
	__typeof__(&select_g_job_test) job_test;
#define GT_AS_DECLARED(name) __typeof__(&select_g_##name) name;
	GT_HOOKED(GT_AS_DECLARED)
#undef GT_AS_DECLARED
	int (*state_save)(char *dir);
	int (*update_node_config)(int index);
#define GT_UNCHANGED(name) gt_forward_t name;
	GT_FORWARDS(GT_UNCHANGED)
#undef GT_UNCHANGED
} gt_stock_t;

extern gt_stock_t gt_stock;

/* RET SLURM_SUCCESS, or SLURM_ERROR with the reason in the log */
extern int gt_stock_open(void);
extern void gt_stock_close(void);

/* The arguments of one select_p_job_test() call, to repeat it. */
typedef struct {
	job_record_t *job;
	bitstr_t *nodes;
	uint32_t min_nodes, max_nodes, req_nodes;
	uint16_t mode;
	list_t *preemptee_candidates;
	list_t **preemptee_job_list;
	GT_TEST_TAIL_FIELDS
} gt_test_t;

extern int gt_stock_job_test(const gt_test_t *test);
