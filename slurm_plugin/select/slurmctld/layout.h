/*
 * The self-check: are Slurm's records what this plugin was compiled for? Checked with the
 * running slurmctld's own nodes and jobs before anything is read or changed.
 */
#pragma once

#include "compat.h"

/* The node table was rebuilt: the next call checks again. */
extern void gt_layout_forget(void);

/* RET true if the nodes' records are as expected; one log line if they are not */
extern bool gt_layout_nodes(void);

/* RET true unless the nodes' or a job's records were found to differ */
extern bool gt_layout_known(void);

/*
 * The same, and this job's record is as expected; `job` is in slurmctld's table.
 * If one job's record differs, those of all jobs do: one log line says so.
 */
extern bool gt_layout_job(const job_record_t *job);

/* RET true if this reservation's record is as expected */
extern bool gt_layout_reservation(const slurmctld_resv_t *reservation);

/* RET true if the records of what cons_tres selected for the job are as expected */
extern bool gt_layout_selection(const job_record_t *job,
				const gres_job_state_t *gpus);
