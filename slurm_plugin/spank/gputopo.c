/* The plugin's hooks. None ever returns an error: a launch must not fail because of them. */
#include <slurm/spank.h>

#include "step.h"

SPANK_PLUGIN(gputopo, 1);

/* Every context: sbatch, salloc, srun, slurmd, slurmstepd, prolog and epilog. */
extern int slurm_spank_init(spank_t spank, int argc, char *argv[])
{
	if (gt_option_register(spank) != ESPANK_SUCCESS)
		slurm_info("gputopo: --gpu-topo is another plugin's option; hints are not read");
	return ESPANK_SUCCESS;
}

extern int slurm_spank_init_post_opt(spank_t spank, int argc, char *argv[])
{
	spank_context_t context = spank_context();

	if (context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR)
		gt_option_carry(spank);
	return ESPANK_SUCCESS;
}

/* slurmstepd, once per step on this node, as the user. */
extern int slurm_spank_user_init(spank_t spank, int argc, char *argv[])
{
	gt_step_prepare(spank, argc, argv);
	return ESPANK_SUCCESS;
}

/* The task's own process, as the user, after Slurm has set its environment and CPUs. */
extern int slurm_spank_task_init(spank_t spank, int argc, char *argv[])
{
	gt_task_init(spank);
	return ESPANK_SUCCESS;
}
