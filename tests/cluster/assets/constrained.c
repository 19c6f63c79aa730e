/*
 * Stands in for ConstrainDevices=yes, which these containers cannot have: gives the task the
 * relative numbers that Slurm writes then. Loaded before the plugin under test.
 */
#include <stdio.h>
#include <string.h>

#include <slurm/spank.h>

SPANK_PLUGIN(constrained, 1);

extern int slurm_spank_task_init(spank_t spank, int argc, char *argv[])
{
	char list[256] = "", relative[256] = "";
	int count = 0;

	(void) argc;
	(void) argv;
	if (spank_getenv(spank, "CUDA_VISIBLE_DEVICES", list, sizeof(list)) != ESPANK_SUCCESS)
		return 0;
	for (char *at = list; at; at = strchr(at + 1, ',')) {
		size_t used = strlen(relative);

		snprintf(relative + used, sizeof(relative) - used, "%s%d", count ? "," : "", count);
		count++;
	}
	spank_setenv(spank, "CUDA_VISIBLE_DEVICES", relative, 1);
	spank_setenv(spank, "ROCR_VISIBLE_DEVICES", relative, 1);
	return 0;
}
