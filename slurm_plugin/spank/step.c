#include "step.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* -------------------------------------------------------------- the option */

static char given[GT_HINT + 1];
static int is_given;

static int take(int value, const char *text, int remote)
{
	const char *refused = text ? gt_hint_refused(text) : "is missing";

	(void) value;
	if (refused) {
		/* on a node nobody would read a message, and a launch must not fail */
		if (remote)
			return ESPANK_SUCCESS;
		slurm_error("gpu-topo: the hint %s", refused);
		/* With an error code Slurm would print the whole hint again, up to a kilobyte. */
		exit(EXIT_FAILURE);
	}
	snprintf(given, sizeof(given), "%s", text);
	is_given = 1;
	return ESPANK_SUCCESS;
}

static struct spank_option option = {
	.name = "gpu-topo",
	.arginfo = "key=value[,...]",
	.usage = "GPU placement and binding: pattern=ring,... or off (gputopo hints lists all)",
	.has_arg = 1,
	.cb = take,
};

extern int gt_option_register(spank_t spank)
{
	return spank_option_register(spank, &option);
}

extern const char *gt_option_value(void)
{
	return is_given ? given : NULL;
}

/*
 * Slurm carries the option to the job's first step and to Lua by itself; the variable carries
 * it to the steps that the job starts. A job submitted from within a job has its own hint.
 */
extern void gt_option_carry(spank_t spank)
{
	if (is_given) {
		setenv(GT_HINT_ENV, given, 1);
		spank_job_control_setenv(spank, "GPU_TOPO", given, 1);
	} else if (spank_context() == S_CTX_ALLOCATOR) {
		unsetenv(GT_HINT_ENV);
	}
}

/* ---------------------------------------------------------------- the step */

/* Slurm's numbers of the steps that hold the whole job: the batch script and salloc's shell. */
#define BATCH_STEP 0xfffffffbu
#define INTERACTIVE_STEP 0xfffffffau

gt_step_t gt_step;

/* Set by the first notice; shared with the tasks, which are forked later. */
static atomic_flag *noticed;

extern long gt_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000L + now.tv_nsec / 1000;
}

extern void gt_getenv(spank_t spank, const char *name, char *value, int size)
{
	if (spank_getenv(spank, name, value, size) != ESPANK_SUCCESS)
		value[0] = '\0';
}

/* Not slurm_error: it would show on the user's terminal, whose job has done nothing wrong. */
extern void gt_step_notice(const char *text)
{
	if (!noticed || !atomic_flag_test_and_set(noticed))
		slurm_info("gputopo: %s; the step runs as Slurm alone would run it", text);
}

/*
 * Writes the path with %n and %h replaced; false when it becomes too long. The node's name is
 * that of slurmstepd's own environment: the job's may name the node it was submitted from.
 */
static bool expand(const char *path, char *out, size_t size)
{
	char host[GT_NAME] = "", text[2] = "";
	const char *node = getenv("SLURMD_NODENAME");
	size_t at = 0;

	gethostname(host, sizeof(host) - 1);
	host[strcspn(host, ".")] = '\0';
	for (const char *c = path; *c; c++) {
		const char *part = text;

		text[0] = *c;
		if (c[0] == '%' && (c[1] == 'n' || c[1] == 'h'))
			part = *++c == 'n' && node ? node : host;
		if (at + strlen(part) >= size)
			return false;
		at += (size_t) snprintf(out + at, size - at, "%s", part);
	}
	return true;
}

/*
 * A batch script or salloc's shell is bound only where the hint names bind=. Slurm does not bind
 * it, and mpirun starts from there with a rank on every CPU of the job.
 */
static bool read_hint(spank_t spank, gt_settings_t *settings)
{
	char hint[GT_HINT + 1];

	if (gt_step.is_shell)
		settings->bind = GT_BIND_NONE;
	if (gt_option_value())
		return gt_hint_apply(gt_option_value(), settings);
	gt_getenv(spank, GT_HINT_ENV, hint, sizeof(hint));
	return gt_hint_apply(hint, settings);
}

/*
 * Slurm sets one variable for steps and the other for a batch script or salloc's shell. The
 * other one may be inherited, with the GPUs of another node.
 */
extern void gt_step_gpus(spank_t spank, char *gpus, int size)
{
	gt_getenv(spank, gt_step.is_shell ? "SLURM_JOB_GPUS" : "SLURM_STEP_GPUS", gpus, size);
}

/*
 * slurmstepd sets these for each task where the step has such a binding. Until then they may
 * hold values of the step that the job was submitted from, so they are removed.
 */
static void forget_exported(spank_t spank)
{
	spank_unsetenv(spank, "SLURMD_TRES_BIND");
	spank_unsetenv(spank, "SLURM_CPU_BIND_TYPE");
	spank_unsetenv(spank, "SLURM_MEM_BIND_TYPE");
}

extern void gt_step_prepare(spank_t spank, int argc, char *argv[])
{
	char wrong[GT_NOTE], path[GT_PATH], gpus[GT_TEXT];
	long start = gt_now_us();
	uint32_t step = 0;

	noticed = mmap(NULL, sizeof(*noticed), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (noticed == MAP_FAILED)
		noticed = NULL;
	if (!gt_settings_parse(&gt_step.settings, argc, argv, wrong)) {
		gt_step_notice(wrong);
		return;
	}
	spank_get_item(spank, S_JOB_STEPID, &step);
	gt_step.is_shell = step == BATCH_STEP || step == INTERACTIVE_STEP;
	/* Steps without GPUs need no table, and say nothing about a missing one. */
	gt_step_gpus(spank, gpus, sizeof(gpus));
	if (!gpus[0] || !read_hint(spank, &gt_step.settings))
		return;
	if (!expand(gt_step.settings.table, path, sizeof(path))) {
		gt_step_notice("argument table: its path is too long");
		return;
	}
	if (!gt_table_load(&gt_step.table, path, wrong)) {
		gt_step_notice(wrong);
		return;
	}
	forget_exported(spank);
	gt_step.is_ready = 1;
	gt_step.prepare_us = gt_now_us() - start;
}
