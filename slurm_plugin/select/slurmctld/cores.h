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

/*
 * What a selection gave a job: CPUs, sockets where they are taken whole (CR_Socket; else 0),
 * memory where it is counted
 */
typedef struct {
	uint32_t cpus;
	uint32_t sockets;
	uint64_t memory_mb;
} gt_cpus_t;

/* Of the last selection */
extern gt_cpus_t gt_cpus_of(const job_record_t *job);

/*
 * RET true if the last selection gave the job other CPUs than it had on these nodes, which
 * nothing but where its GPUs are explains: with --gres-flags=enforce-binding they may be of
 * two sockets, which are taken whole under CR_Socket, or of one that has no core left for
 * each of them. On nodes of other cores it may have more, but for sockets that are taken
 * whole and where users and accounts are held to limits (then of no more nodes, either), and
 * the whole of a smaller one. Or less memory than there, as a job of --mem=0 has on a smaller node
 */
extern bool gt_has_other_cpus(const job_record_t *job, const gt_cpus_t *own,
			      bitstr_t *nodes);
