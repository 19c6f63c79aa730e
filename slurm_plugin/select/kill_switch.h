/* Is the kill-switch file there? Looked up at most once a second. Pure. */
#ifndef GT_KILL_SWITCH_H
#define GT_KILL_SWITCH_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
	int64_t checked_us;
	bool known;
	bool thrown;
} gt_kill_switch_t;

extern bool gt_kill_switch_thrown(gt_kill_switch_t *kill_switch,
				  const char *path, int64_t now_us);

#endif
