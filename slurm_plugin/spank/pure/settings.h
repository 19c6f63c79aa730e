/*
 * The plugin's settings: the arguments of its plugstack.conf line, changed by the job's hint.
 * No Slurm header.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lists.h"

typedef enum { GT_BIND_NONE, GT_BIND_NUMA } gt_bind_t;
typedef enum { GT_MEM_NONE, GT_MEM_PREFERRED, GT_MEM_BIND, GT_MEM_INTERLEAVE } gt_mem_t;
typedef enum { GT_AUTO, GT_GLOBAL, GT_RELATIVE } gt_numbering_t;
typedef enum { GT_NIC_OFF, GT_NIC_ON, GT_NIC_TRUST } gt_nic_t;

typedef struct {
	char table[GT_PATH];	/* %n: node name, %h: host name up to the first dot */
	char pattern[GT_NAME];	/* for jobs whose hint names none */
	char devices[GT_PATH];	/* device files without their minor; "": the vendor's */
	char uuids[GT_PATH];	/* the driver's folder of GPUs, by PCI address */
	char record[GT_PATH];	/* for tests: a folder for the requests to the kernel */
	char pretend[GT_PATH];	/* for tests: the task's CPUs; the kernel is not asked */
	gt_bind_t bind;		/* CPUs and memory, or neither */
	gt_mem_t mem;
	gt_nic_t nic;
	gt_numbering_t numbering;
} gt_settings_t;

extern void gt_settings_defaults(gt_settings_t *settings);

/*
 * Reads key=value arguments over the defaults. RET false with one sentence in
 * wrong[GT_NOTE] that names the bad key; *settings then holds the defaults
 */
extern bool gt_settings_parse(gt_settings_t *settings, int argc, char *const argv[],
			      char *wrong);

extern const char *gt_mem_name(gt_mem_t mem);

/*
 * Changes the settings by the hint's pattern=, bind= and mem=. All other keys are for the
 * engine, which has refused wrong ones at submit; here they are ignored.
 * RET false when the hint is `off`: then nothing is to be done for this job
 */
extern bool gt_hint_apply(const char *hint, gt_settings_t *settings);

/* RET NULL when the text can be a hint, or what is wrong with it */
extern const char *gt_hint_refused(const char *hint);
