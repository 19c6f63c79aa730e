/* Which jobs the engine is asked about, and the question for one of them. */
#pragma once

#include "protocol.h"
#include "stock.h"
#include "postpone.h"

typedef struct {
	const gt_test_t *test;
	gres_job_state_t *gpus;	/* the request, also one for shares of GPUs */
	const gres_state_t *shares;	/* the same for shards or MPS, else NULL */
	uint64_t share_count;	/* shares on each of the job's nodes */
	bitstr_t *offered;	/* nodes that Slurm offered to cons_tres */
	bitstr_t *own;		/* nodes that cons_tres chose; ours to free */
	bitstr_t *asked;	/* nodes in the question; ours to free */
	uint64_t heaviest;	/* weight of other nodes, in Slurm's order of them */
	bool told;		/* what changed in the table of nodes */
} gt_question_t;

/*
 * Before the stock selection. RET the job's request for GPUs or shares of them; NULL if it
 * is Slurm's alone
 */
extern gres_state_t *gt_request_gpus(const gt_test_t *test);

/*
 * After the stock selection succeeded. RET true if the engine may be asked to choose
 * other GPUs: none are reserved, nobody is preempted, and the job shares its nodes but no core
 */
extern bool gt_request_is_open(gt_question_t *question);

/* RET false if it cannot be put into one line */
extern bool gt_question_write(gt_question_t *question, gt_line_t *line,
			      uint64_t id, const gt_earlier_t *earlier);

/*
 * RET true if the job may use this node of the question: what the question could not
 * tell of nodes that Slurm did not choose is looked at here, for those of the advice
 */
extern bool gt_question_allows(const gt_question_t *question, int index);

/* GPUs of a node that the job may get, or get its shares of */
extern uint64_t gt_question_room(const gt_question_t *question, int index);

extern void gt_question_free(gt_question_t *question);
