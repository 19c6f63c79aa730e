/*
 * Whether the kill-switch file exists. A thread checks twice a second, so that slurmctld,
 * which asks under its locks, never waits for a file system. No Slurm header.
 */
#pragma once

#include <stdbool.h>

/* Checks at once, and from then on twice a second. May be called again. */
extern void gt_kill_switch_watch(const char *path);

/* RET true if the file existed at the last check; never blocks */
extern bool gt_kill_switch_thrown(void);

extern void gt_kill_switch_stop(void);
