#include "option.h"

#include <stdio.h>
#include <stdlib.h>

#include "settings.h"

static char given[GT_HINT + 1];
static int is_given;

static int take(int value, const char *text, int remote)
{
	const char *refused = text ? gt_hint_refused(text) : "is missing";

	(void) value;
	if (refused) {
		/* On a node nobody reads it, and a launch never fails. */
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
