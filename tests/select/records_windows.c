/* More of records_test.c: cores of other jobs, and until when a job that waits could start. */
#include "../claims.h"
#include "cores.h"
#include "windows.h"

/* The only node */
#define DGX1 (*node_record_table_ptr[0])

static __typeof__(*((job_record_t *) NULL)->details) details = {
	.magic = DETAILS_MAGIC,
};
list_t *job_list, *resv_list;
uint16_t accounting_enforce;
static part_record_t partition = { .magic = PART_MAGIC, .max_share = 1, .max_time = 60 };

/* A running job with these of the four cores of dgx1, in a partition of its own */
static job_record_t on_cores(uint64_t cores)
{
	job_record_t one = {
		.magic = JOB_MAGIC,
		.details = &details,
		.job_state = JOB_RUNNING,
		.part_ptr = &partition,
		.job_resrcs = create_job_resources(),
	};

	DGX1.tot_cores = 4;
	one.job_resrcs->node_bitmap = bit_alloc(1);
	bit_set(one.job_resrcs->node_bitmap, 0);
	one.job_resrcs->core_bitmap = bit_alloc(4);
	for (int i = 0; i < 4; i++)
		if (cores >> i & 1)
			bit_set(one.job_resrcs->core_bitmap, i);
	return one;
}

CLAIM(cores_are_shared_where_slurm_may_and_another_job_has_them)
{
	job_record_t mine = on_cores(0x3), beside = on_cores(0xc), over = on_cores(0x6);

	job_list = list_create(NULL);
	list_append(job_list, &mine);
	list_append(job_list, &over);
	DGX1.run_job_cnt = 1;
	CHECK(!gt_shares_cores(&mine));	/* OverSubscribe=NO: nothing is looked at */
	partition.max_share = SHARED_FORCE | 4;
	CHECK(gt_shares_cores(&mine));
	over.job_state = JOB_SUSPENDED;	/* by an administrator: its cores are free */
	CHECK(!gt_shares_cores(&mine));
	over.priority = 1;	/* it takes turns */
	CHECK(gt_shares_cores(&mine));
	over.job_state = JOB_COMPLETE;
	list_append(job_list, &beside);
	CHECK(!gt_shares_cores(&mine));
	partition.max_share = 4;
	over.job_state = JOB_RUNNING;
	CHECK(!gt_shares_cores(&mine));	/* it may be asked for, and was not */
	details.share_res = 1;
	CHECK(gt_shares_cores(&mine));
	details.share_res = 0;
	partition.max_share = 1;
	slurm_conf.preempt_mode = PREEMPT_MODE_SUSPEND | PREEMPT_MODE_GANG;
	CHECK(gt_shares_cores(&mine));
	DGX1.run_job_cnt = 0;	/* nobody is there: nobody is looked for */
	CHECK(!gt_shares_cores(&mine));
	slurm_conf.preempt_mode = PREEMPT_MODE_OFF;
	FREE_NULL_LIST(job_list);
}

CLAIM(where_sockets_are_taken_whole_a_job_gets_no_more_of_them)
{
	job_record_t own = on_cores(0x3), ours = on_cores(0x6);
	gt_cpus_t was;

	own.total_cpus = ours.total_cpus = 2;
	DGX1.tot_sockets = DGX1.cores = 2;
	was = gt_cpus_of(&own);
	CHECK(was.cpus == 2 && was.sockets == 0);	/* not whole: not counted */
	CHECK(!gt_has_other_cpus(&ours, &was, own.job_resrcs->node_bitmap));
	own.job_resrcs->cr_type = ours.job_resrcs->cr_type = GT_SOCKETS;
	was = gt_cpus_of(&own);
	CHECK(was.sockets == 1 && gt_cpus_of(&ours).sockets == 2);
	CHECK(gt_has_other_cpus(&ours, &was, own.job_resrcs->node_bitmap));
	CHECK(!gt_has_other_cpus(&own, &was, own.job_resrcs->node_bitmap));
	was = gt_cpus_of(&ours);
	CHECK(!gt_has_other_cpus(&own, &was, own.job_resrcs->node_bitmap));
}

CLAIM(a_job_has_no_less_memory_than_by_slurms_choice_and_no_more_where_there_are_limits)
{
	job_record_t own = on_cores(0x3), ours = on_cores(0x3);
	uint64_t much[] = { 4000 }, less[] = { 3000 };
	gt_cpus_t was;

	own.total_cpus = ours.total_cpus = 2;
	own.job_resrcs->nhosts = ours.job_resrcs->nhosts = 1;
	own.job_resrcs->memory_allocated = much;
	ours.job_resrcs->memory_allocated = less;
	was = gt_cpus_of(&own);
	CHECK(was.memory_mb == 4000);
	CHECK(gt_has_other_cpus(&ours, &was, own.job_resrcs->node_bitmap));
	was = gt_cpus_of(&ours);
	CHECK(!gt_has_other_cpus(&own, &was, own.job_resrcs->node_bitmap));
	accounting_enforce = ACCOUNTING_ENFORCE_LIMITS;
	CHECK(gt_has_other_cpus(&own, &was, own.job_resrcs->node_bitmap));
	accounting_enforce = 0;
	own.job_resrcs->memory_allocated = ours.job_resrcs->memory_allocated = NULL;
}

CLAIM(where_there_are_limits_a_job_has_no_more_nodes_than_by_slurms_choice)
{
	job_record_t own = on_cores(0x3), ours = on_cores(0x3);
	bitstr_t *slurms = bit_alloc(2), *two = bit_alloc(2);
	bitstr_t *former = ours.job_resrcs->node_bitmap;
	gt_cpus_t was;

	own.total_cpus = ours.total_cpus = 2;
	bit_set(slurms, 0);
	bit_nset(two, 0, 1);
	was = gt_cpus_of(&own);
	ours.job_resrcs->node_bitmap = two;
	CHECK(!gt_has_other_cpus(&ours, &was, slurms));
	accounting_enforce = ACCOUNTING_ENFORCE_LIMITS;
	CHECK(gt_has_other_cpus(&ours, &was, slurms));
	CHECK(!gt_has_other_cpus(&ours, &was, two));
	accounting_enforce = 0;
	ours.job_resrcs->node_bitmap = former;
	FREE_NULL_BITMAP(slurms);
	FREE_NULL_BITMAP(two);
}

/* Where nothing is said: bf_interval, bf_max_time, bf_resolution, and half a minute to spare */
#define LOOK_S (30 + 30 + 60 + 30)

/* RET a reservation of dgx1 that begins so many seconds after `now` */
static slurmctld_resv_t *reserved(time_t now, int64_t in_s)
{
	slurmctld_resv_t *reservation = xcalloc(1, sizeof(*reservation));

	reservation->start_time = reservation->start_time_first = now + in_s;
	reservation->end_time = reservation->start_time + 3600;
	reservation->node_bitmap = bit_alloc(1);
	bit_set(reservation->node_bitmap, 0);
	return reservation;
}

CLAIM(a_wait_ends_while_the_job_fits_before_a_reservation)
{
	job_record_t mine = on_cores(0x3);
	time_t now = 1000000;
	slurmctld_resv_t *next = reserved(now, 600), *later = reserved(now, 900);

	mine.time_limit = 5;
	resv_list = list_create(NULL);
	CHECK(gt_window_s(&mine, now) == INT64_MAX);
	list_append(resv_list, later);
	list_append(resv_list, next);
	CHECK(gt_window_s(&mine, now) == 600 - 300 - LOOK_S);
	CHECK(gt_window_s(&mine, now + 250) <= 0);
	CHECK(gt_window_s(&mine, now + 300) <= 0);
	/* it started although that one is too near: it does not mind it */
	CHECK(gt_window_s(&mine, now + 301) == 900 - 601 - LOOK_S);
	next->flags = later->flags = RESERVE_FLAG_TIME_FLOAT;
	CHECK(gt_window_s(&mine, now) == INT64_MAX);
	next->flags = 0;
	bit_clear(next->node_bitmap, 0);
	CHECK(gt_window_s(&mine, now) == INT64_MAX);
	mine.license_list = next->license_list = list_create(NULL);
	CHECK(gt_window_s(&mine, now) == 600 - 300 - LOOK_S);
	next->boot_time = 50;	/* Slurm takes it that the node is booted */
	CHECK(gt_window_s(&mine, now) == 250 - LOOK_S);
	next->boot_time = 0;
	partition.max_share = SHARED_FORCE | 2;
	CHECK(gt_window_s(&mine, now) == 300 - LOOK_S);
	slurm_conf.preempt_mode = PREEMPT_MODE_GANG;	/* twice as long */
	CHECK(gt_window_s(&mine, now) == 0 - LOOK_S);
	slurm_conf.preempt_mode = PREEMPT_MODE_OFF;
	partition.max_share = 1;
	slurm_conf.sched_params = "bf_interval=100,bf_max_time=50,bf_resolution=20";
	CHECK(gt_window_s(&mine, now) == 300 - 200);
	slurm_conf.sched_params = NULL;
	mine.time_min = 1;
	CHECK(gt_window_s(&mine, now) == 0);
	mine.time_min = 0;
	mine.time_limit = NO_VAL;	/* the partition's hour */
	CHECK(gt_window_s(&mine, now) == INT64_MAX);
	mine.resv_name = "r";
	CHECK(gt_window_s(&mine, now) == 0);
	FREE_NULL_LIST(resv_list);
}

CLAIM(a_wait_ends_while_the_job_fits_before_one_that_backfill_planned)
{
	job_record_t mine = on_cores(0x3), planned = on_cores(0xf);
	time_t now = 1000000;

	mine.time_limit = 5;
	planned.job_state = JOB_PENDING;
	planned.start_time = now + 600;
	planned.sched_nodes = "dgx[1-3]";
	job_list = list_create(NULL);
	list_append(job_list, &mine);
	list_append(job_list, &planned);
	CHECK(gt_window_s(&mine, now) == INT64_MAX);	/* it passes nobody */
	mine.bit_flags = BACKFILL_SCHED;
	CHECK(gt_window_s(&mine, now) == 300 - LOOK_S);
	planned.sched_nodes = "dgx[2-3]";
	CHECK(gt_window_s(&mine, now) == INT64_MAX);
	planned.sched_nodes = "dgx1";
	planned.start_time = now + 200;	/* not in its way, or it could not start now */
	CHECK(gt_window_s(&mine, now) == INT64_MAX);
	FREE_NULL_LIST(job_list);
}

CLAIM(a_wait_ends_before_power_saving_switches_a_node_off)
{
	job_record_t mine = on_cores(0x3);
	time_t now = 1000000;

	DGX1.suspend_time = 300;
	DGX1.last_busy = now - 100;
	CHECK(gt_window_s(&mine, now) == INT64_MAX);	/* nobody switches it off */
	slurm_conf.suspend_program = slurm_conf.resume_program = "/bin/true";
	CHECK(gt_window_s(&mine, now) == 200 - LOOK_S);
	DGX1.run_job_cnt = 1;	/* others keep it up */
	CHECK(gt_window_s(&mine, now) == INT64_MAX);
	DGX1.run_job_cnt = 0;
	DGX1.last_busy = now - 500;	/* it should be off long ago: it is left out */
	CHECK(gt_window_s(&mine, now) == INT64_MAX);
	DGX1.suspend_time = INFINITE;
	CHECK(gt_window_s(&mine, now) == INT64_MAX);
}
