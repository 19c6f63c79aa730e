/*
 * Cores: how many nodes have, and those that two jobs may have at once, under gang scheduling
 * and OverSubscribe.
 */
#pragma once

#include "compat.h"

/*
 * RET true if what the last selection gave the job has a core that another job has: one of
 * the two would be suspended in turn, or both be slowed down. Where Slurm never gives a core
 * to two jobs nothing is looked at
 */
extern bool gt_shares_cores(const job_record_t *job);

/* RET true if as many cores, sockets and threads of the nodes are as many CPUs */
static inline bool gt_have_like_cores(const node_record_t *one,
				      const node_record_t *other)
{
	return one->tot_sockets == other->tot_sockets &&
	       one->cores == other->cores && one->tpc == other->tpc;
}
