/*
 * Tells the engine all nodes (docs/protocol.md, `nodes`), in a thread and on a connection of
 * its own: at first, after the engine was started again, and whenever the mirror wants it.
 * On the same connection the engine may ask for a scheduling pass. No Slurm header.
 */
#pragma once

#include "mirror.h"
#include "settings.h"

typedef enum {
	GT_SAY_DETAIL,
	GT_SAY_NEWS,
	GT_SAY_TROUBLE,
} gt_tone_t;

/* A line for the log, from the thread */
typedef void (*gt_say_t)(const char *text, gt_tone_t tone);

/* Begins a scheduling pass, from the thread */
typedef void (*gt_pass_t)(void);

/*
 * Starts the thread, or gives it these settings. While the kill switch is set it is silent.
 * RET false where there is none: it could not be started, or an earlier one hangs somewhere
 */
extern bool gt_sender_start(gt_mirror_t *mirror, const gt_config_t *config,
			    gt_say_t say, gt_pass_t pass);

extern void gt_sender_stop(void);
