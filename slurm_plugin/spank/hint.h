/*
 * What the launch reads in a hint: pattern=, bind=, mem=, or `off`. All other keys are the
 * engine's, which has refused wrong ones at submit; here they are passed over.
 * Pure: no Slurm header.
 */
#pragma once

#include <stdbool.h>

#include "settings.h"

/*
 * Lays a hint over the settings; words that are none of ours change nothing.
 * RET false when the hint is `off`: then nothing is to be done for this job.
 */
extern bool gt_hint_apply(const char *hint, gt_settings_t *settings);

/* Whether the text can be carried. RET NULL, or what is wrong with it. */
extern const char *gt_hint_refused(const char *hint);
