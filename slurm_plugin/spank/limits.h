/* Bounds shared by the plugin's files. Pure: no Slurm header. */
#pragma once

#define GT_GPUS 128		/* GPUs of one node, at most */
#define GT_EXACT_GPUS 16	/* nodes up to this size have a row per GPU set */
#define GT_NUMA 64		/* NUMA nodes of one node; numbers below this */
#define GT_CPUS 8192		/* logical CPUs of one node; numbers below this */
#define GT_NAME 64		/* a name in the table, with its NUL */
#define GT_PATH 256
#define GT_TEXT 1024		/* a list of devices or NICs, with its NUL */
#define GT_NOTE 240		/* one sentence for the log */
#define GT_HINT 1024		/* bytes of a hint, as the engine allows */
#define GT_TABLE_BYTES (16u << 20)
