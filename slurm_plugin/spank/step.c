#define _GNU_SOURCE
#include "step.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "hint.h"
#include "option.h"

gt_step_t gt_step;

/* Shared with the tasks, which are forked later. */
static atomic_flag *said;

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

/* Not slurm_error: the user's terminal would show it for a job that is not at fault. */
extern void gt_step_notice(const char *text)
{
	if (!said || !atomic_flag_test_and_set(said))
		slurm_info("gputopo: %s; the step runs as Slurm alone would run it", text);
}

/* The path with %n and %h written out; false when it becomes too long. */
static bool expand(const char *path, spank_t spank, char *out, size_t size)
{
	char host[GT_NAME] = "", node[GT_NAME], text[2] = "";
	size_t at = 0;

	gethostname(host, sizeof(host) - 1);
	host[strcspn(host, ".")] = '\0';
	gt_getenv(spank, "SLURMD_NODENAME", node, sizeof(node));
	for (const char *c = path; *c; c++) {
		const char *part = text;

		text[0] = *c;
		if (c[0] == '%' && (c[1] == 'n' || c[1] == 'h'))
			part = *++c == 'n' && node[0] ? node : host;
		if (at + strlen(part) >= size)
			return false;
		at += (size_t) snprintf(out + at, size - at, "%s", part);
	}
	return true;
}

static bool read_hint(spank_t spank, gt_settings_t *settings)
{
	char hint[GT_HINT + 1];

	if (gt_option_value())
		return gt_hint_apply(gt_option_value(), settings);
	gt_getenv(spank, GT_HINT_ENV, hint, sizeof(hint));
	return gt_hint_apply(hint, settings);
}

/* Steps without GPUs need no table, and say nothing about a missing one. */
static bool has_gpus(spank_t spank)
{
	char gpus[GT_TEXT];

	gt_getenv(spank, "SLURM_STEP_GPUS", gpus, sizeof(gpus));
	if (!gpus[0])
		gt_getenv(spank, "SLURM_JOB_GPUS", gpus, sizeof(gpus));
	return gpus[0];
}

extern void gt_step_prepare(spank_t spank, int argc, char *argv[])
{
	char wrong[GT_NOTE], path[GT_PATH];
	long start = gt_now_us();

	said = mmap(NULL, sizeof(*said), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		    -1, 0);
	if (said == MAP_FAILED)
		said = NULL;
	if (!gt_settings_parse(&gt_step.settings, argc, argv, wrong)) {
		gt_step_notice(wrong);
		return;
	}
	if (!has_gpus(spank) || !read_hint(spank, &gt_step.settings))
		return;
	if (!expand(gt_step.settings.table, spank, path, sizeof(path))) {
		gt_step_notice("argument table: its path is too long");
		return;
	}
	if (!gt_table_load(&gt_step.table, path, wrong)) {
		gt_step_notice(wrong);
		return;
	}
	gt_step.is_ready = 1;
	gt_step.prepare_us = gt_now_us() - start;
}
