/*
 * A thread that asks for a scheduling pass when a postponed job's time has come:
 * Slurm itself looks at begin times only once a minute or so.
 */
#pragma once

#include <time.h>

extern void gt_alarm_set(time_t when);
extern void gt_alarm_stop(void);
