/*
 * Is the kill-switch file there? A thread looks twice a second, so whoever asks
 * (slurmctld, under its locks) never waits for a file system. Pure.
 */
#pragma once

#include <stdbool.h>

/* Looks once, and again and again from then on. May be called anew. */
extern void gt_kill_switch_watch(const char *path);

/* RET true if the file was there when it was last looked for; never blocks */
extern bool gt_kill_switch_thrown(void);

extern void gt_kill_switch_stop(void);
