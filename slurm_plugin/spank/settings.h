/* The plugin's settings: the arguments of its plugstack.conf line. Pure: no Slurm header. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "cpuset.h"
#include "limits.h"

typedef enum { GT_MEM_NONE, GT_MEM_PREFERRED, GT_MEM_BIND, GT_MEM_INTERLEAVE } gt_mem_t;
typedef enum { GT_AUTO, GT_GLOBAL, GT_RELATIVE } gt_numbering_t;
typedef enum { GT_NIC_OFF, GT_NIC_ON, GT_NIC_TRUST } gt_nic_t;

typedef struct {
	char table[GT_PATH];	/* %n: node name, %h: host name up to the first dot */
	char pattern[GT_NAME];	/* where no hint names one */
	char devices[GT_PATH];	/* device files are this and the minor; "": by vendor */
	char record[GT_PATH];	/* tests: a folder for what would be asked of the kernel */
	char pretend[GT_PATH];	/* tests: the task's CPUs instead of the kernel's word */
	bool bind;		/* CPUs and memory, or neither */
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

/* A word for bind= or mem=; RET false when it is none. */
extern bool gt_bind_parse(const char *word, size_t len, bool *bind);
extern bool gt_mem_parse(const char *word, size_t len, gt_mem_t *mem);
extern const char *gt_mem_name(gt_mem_t mem);
