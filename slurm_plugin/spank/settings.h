/*
 * The plugin's settings: the arguments of its plugstack.conf line, and what a hint says over
 * them. Pure: no Slurm header.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "cpuset.h"
#include "limits.h"

typedef enum { GT_BIND_NONE, GT_BIND_NUMA } gt_bind_t;
typedef enum { GT_MEM_NONE, GT_MEM_PREFERRED, GT_MEM_BIND, GT_MEM_INTERLEAVE } gt_mem_t;
typedef enum { GT_AUTO, GT_GLOBAL, GT_RELATIVE } gt_numbering_t;
typedef enum { GT_NIC_OFF, GT_NIC_ON, GT_NIC_TRUST } gt_nic_t;

typedef struct {
	char table[GT_PATH];	/* %n: node name, %h: host name up to the first dot */
	char pattern[GT_NAME];	/* where no hint names one */
	char devices[GT_PATH];	/* device files are this and the minor; "": by vendor */
	char record[GT_PATH];	/* tests: a folder for what would be asked of the kernel */
	char pretend[GT_PATH];	/* tests: the task's CPUs instead of the kernel's word */
	gt_bind_t bind;		/* CPUs and memory, or neither */
	gt_mem_t mem;
	gt_nic_t nic;
	gt_numbering_t numbering;
} gt_settings_t;

extern void gt_settings_defaults(gt_settings_t *settings);

/*
 * Reads key=value arguments over the defaults.
 * RET true, or false with one sentence in wrong[GT_NOTE] naming the key; *settings then
 * holds the defaults.
 */
extern bool gt_settings_parse(gt_settings_t *settings, int argc, char *const argv[],
			      char *wrong);

extern const char *gt_mem_name(gt_mem_t mem);

/*
 * Lays a hint's pattern=, bind= and mem= over the settings. All other keys are the engine's,
 * which has refused wrong ones at submit; here they change nothing.
 * RET false when the hint is `off`: then nothing is to be done for this job.
 */
extern bool gt_hint_apply(const char *hint, gt_settings_t *settings);

/* Whether the text can be carried. RET NULL, or what is wrong with it. */
extern const char *gt_hint_refused(const char *hint);
