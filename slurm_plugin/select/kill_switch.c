#include "kill_switch.h"

#include <unistd.h>

extern bool gt_kill_switch_thrown(gt_kill_switch_t *kill_switch,
				  const char *path, int64_t now_us)
{
	if (!kill_switch->known ||
	    now_us - kill_switch->checked_us >= 1000000) {
		kill_switch->known = true;
		kill_switch->checked_us = now_us;
		kill_switch->thrown = !access(path, F_OK);
	}
	return kill_switch->thrown;
}
