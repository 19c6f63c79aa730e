#include "step.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "kernel.h"
#include "plan.h"

/* Holds the NICs that we chose for a batch script; its steps inherit it. */
#define NICS_ENV "GPUTOPO_NICS"

/* The texts that gt_task_t points to. */
typedef struct {
	char visible[GT_TEXT], step_gpus[GT_TEXT], tres_bind[GT_TEXT];
	gt_uuids_t uuids;
} texts_t;

static bool is_set(spank_t spank, const char *name)
{
	char value[2];
	spank_err_t got = spank_getenv(spank, name, value, sizeof(value));

	return got == ESPANK_NOSPACE || (got == ESPANK_SUCCESS && value[0]);
}

/* RET false, with errno, when the kernel does not name the task's CPUs */
static bool read_task(spank_t spank, gt_task_t *task, texts_t *texts)
{
	uint64_t memory_mb = 0;
	uint32_t tasks = 0, cpus_per_task = 0;

	*task = (gt_task_t) { .visible = texts->visible, .step_gpus = texts->step_gpus,
			      .tres_bind = texts->tres_bind,
			      .numa_memory_mb = gt_kernel_numa_memory_mb };
	if (gt_step.settings.nic != GT_NIC_TRUST)
		task->has_nic = gt_kernel_has_nic;
	spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &tasks);
	spank_get_item(spank, S_TASK_ID, &task->local_id);
	spank_get_item(spank, S_STEP_CPUS_PER_TASK, &cpus_per_task);
	spank_get_item(spank, S_JOB_ALLOC_MEM, &memory_mb);
	task->tasks = (int) tasks;
	task->cpus_per_task = (int) cpus_per_task;
	task->memory_mb = (unsigned long) memory_mb;
	gt_step_gpus(spank, texts->step_gpus, GT_TEXT);
	gt_getenv(spank, gt_step.table.amd ? "ROCR_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES",
		  texts->visible, GT_TEXT);
	if (!strncmp(texts->visible, "GPU-", 4)) {
		gt_kernel_uuids(&gt_step.settings, &texts->uuids);
		task->uuids = &texts->uuids;
	}
	gt_getenv(spank, "SLURMD_TRES_BIND", texts->tres_bind, GT_TEXT);
	task->is_cpu_bound = is_set(spank, "SLURM_CPU_BIND_TYPE");
	task->is_mem_bound = is_set(spank, "SLURM_MEM_BIND_TYPE");
	gt_kernel_access(&gt_step.table, &gt_step.settings, &task->access);
	return gt_kernel_cpus(&gt_step.settings, &task->cpus);
}

/* HIP and OpenCL filter what ROCr shows a second time, so only ROCr may filter. */
static void set_devices(spank_t spank, const char *visible)
{
	if (gt_step.table.amd) {
		spank_setenv(spank, "ROCR_VISIBLE_DEVICES", visible, 1);
		spank_unsetenv(spank, "HIP_VISIBLE_DEVICES");
		spank_unsetenv(spank, "CUDA_VISIBLE_DEVICES");
		spank_unsetenv(spank, "GPU_DEVICE_ORDINAL");
	} else {
		spank_setenv(spank, "CUDA_VISIBLE_DEVICES", visible, 1);
		spank_setenv(spank, "CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
	}
}

/* Writes names by comma as each library wants them: UCX with a port, NCCL behind "=". */
static void for_libraries(const char *nics, char ports[2 * GT_TEXT], char names[GT_TEXT + 2])
{
	size_t at = 0;

	/* NCCL takes names as prefixes unless the list begins with "=". */
	snprintf(names, GT_TEXT + 2, "=%s", nics);
	for (const char *c = nics; *c && at + 6 < 2 * GT_TEXT; c++) {
		if (*c == ',') {
			memcpy(ports + at, ":1", 2);
			at += 2;
		}
		ports[at++] = *c;
	}
	memcpy(ports + at, ":1", 3);
}

/* RET true when a variable is not set, or as we set it for the batch script of this step */
static bool is_ours(spank_t spank, const char *name, const char *ours)
{
	char value[2 * GT_TEXT];

	if (!is_set(spank, name))
		return true;
	gt_getenv(spank, name, value, sizeof(value));
	return !strcmp(value, ours);
}

/* Where a user has chosen the NICs of either library, both stay as they are. */
static void set_nics(spank_t spank, const char *nics)
{
	char before[GT_TEXT], ports[2 * GT_TEXT], names[GT_TEXT + 2];

	gt_getenv(spank, NICS_ENV, before, sizeof(before));
	for_libraries(before, ports, names);
	if (!is_ours(spank, "UCX_NET_DEVICES", ports) || !is_ours(spank, "NCCL_IB_HCA", names))
		return;
	if (nics[0]) {
		for_libraries(nics, ports, names);
		spank_setenv(spank, NICS_ENV, nics, 1);
		spank_setenv(spank, "UCX_NET_DEVICES", ports, 1);
		spank_setenv(spank, "NCCL_IB_HCA", names, 1);
	} else if (before[0]) {
		spank_unsetenv(spank, NICS_ENV);
		spank_unsetenv(spank, "UCX_NET_DEVICES");
		spank_unsetenv(spank, "NCCL_IB_HCA");
	}
}

/* For tests: writes the requests to the kernel, and how long all took. */
static void record(spank_t spank, const gt_plan_t *plan, long task_us)
{
	char path[GT_PATH + 64];
	uint32_t job = 0, step = 0, rank = 0;
	FILE *file;

	spank_get_item(spank, S_JOB_ID, &job);
	spank_get_item(spank, S_JOB_STEPID, &step);
	spank_get_item(spank, S_TASK_GLOBAL_ID, &rank);
	snprintf(path, sizeof(path), "%s/%u.%u.%u", gt_step.settings.record, job, step, rank);
	if (!(file = fopen(path, "we")))
		return;
	gt_kernel_record(file, plan);
	fprintf(file, "task_us=%ld prepare_us=%ld\n", task_us, gt_step.prepare_us);
	fclose(file);
}

static void apply(spank_t spank, const gt_plan_t *plan)
{
	char note[GT_NOTE];
	const char *failed;

	set_devices(spank, plan->visible);
	set_nics(spank, plan->nics);
	if (!(failed = gt_kernel_apply(&gt_step.settings, plan)))
		return;
	snprintf(note, sizeof(note), "%s: %s; is the table (%.60s) this machine's?", failed,
		 strerror(errno), gt_step.table.machine);
	gt_step_notice(note);
}

extern void gt_task_init(spank_t spank)
{
	long start = gt_now_us();
	char note[GT_NOTE];
	texts_t texts;
	gt_task_t task;
	gt_plan_t plan;

	/* The job's own steps find the hint in their environment. */
	if (gt_option_value())
		spank_setenv(spank, GT_HINT_ENV, gt_option_value(), 1);
	if (!gt_step.is_ready)
		return;
	if (!read_task(spank, &task, &texts)) {
		snprintf(note, sizeof(note), "sched_getaffinity: %s", strerror(errno));
		gt_step_notice(note);
		return;
	}
	if (!gt_plan(&gt_step.table, &gt_step.settings, &task, &plan, note)) {
		if (note[0])
			gt_step_notice(note);
		return;
	}
	apply(spank, &plan);
	if (gt_step.settings.record[0])
		record(spank, &plan, gt_now_us() - start);
}
