/* The question for one job that Slurm would start now. */
#pragma once

#include "protocol.h"
#include "stock.h"
#include "wait.h"

typedef struct {
	const gt_test_t *test;
	const gres_job_state_t *gpus;
	bitstr_t *offered;	/* nodes that Slurm offered to cons_tres */
	bitstr_t *own;		/* nodes that cons_tres chose; ours to free */
	bitstr_t *asked;	/* nodes in the question; ours to free */
} gt_question_t;

/* RET false if it cannot be put into one line */
extern bool gt_question_write(gt_question_t *question, gt_line_t *line,
			      uint64_t id, const gt_postponement_t *earlier);

extern void gt_question_free(gt_question_t *question);
