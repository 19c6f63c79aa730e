/*
 * Is the kill-switch file there? A thread looks twice a second, so whoever asks
 * (slurmctld, under its locks) never waits for a file system. Pure.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "settings.h"

typedef struct {
	pthread_t thread;
	bool running;
	/* shared with the thread, under a lock of this file */
	char path[GT_PATH_MAX];
	bool stopping;
	bool thrown;
} gt_kill_switch_t;

/* Looks once, and again and again from then on. May be called anew. */
extern void gt_kill_switch_watch(gt_kill_switch_t *kill_switch,
				 const char *path);

/* RET true if the file was there when it was last looked for; never blocks */
extern bool gt_kill_switch_thrown(gt_kill_switch_t *kill_switch);

extern void gt_kill_switch_stop(gt_kill_switch_t *kill_switch);
