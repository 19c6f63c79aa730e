/* The stock select/cons_tres that stands behind us in PluginDir. */
#pragma once

#include "compat.h"
#include "forwards.h"

#define GT_PLUGIN_NAME "GPU topology over select/cons_tres"

/*
 * All forwarded functions take at most six integer or pointer arguments, which
 * the x86-64 and AArch64 ABIs pass in registers: one type fits them all.
 */
typedef long (*gt_forward_t)(long, long, long, long, long, long);

typedef int (*gt_job_test_f)(job_record_t *, bitstr_t *, uint32_t, uint32_t,
			     uint32_t, uint16_t, list_t *, list_t **,
			     GT_TEST_TAIL);

typedef struct {
	void *handle;
	gt_job_test_f job_test;
#define GT_FIELD(name) gt_forward_t name;
	GT_FORWARDS(GT_FIELD)
	GT_HOOKED(GT_FIELD)
	GT_HOOKED_WHERE_THERE(GT_FIELD)
#undef GT_FIELD
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
