/* One task, just before it becomes the user's program. */
#pragma once

#include <slurm/spank.h>

/* Sets environment, CPUs and memory policy; trouble is logged and the task left alone. */
extern void gt_task_init(spank_t spank);
