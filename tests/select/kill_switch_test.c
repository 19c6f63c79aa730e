#define _GNU_SOURCE
#include "kill_switch.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "../claims.h"

/* A file system that hangs, while `hangs` is set: this stands in for libc's. */
static volatile bool hangs;

int access(const char *path, int mode)
{
	while (hangs)
		usleep(1000);
	return faccessat(AT_FDCWD, path, mode, 0);
}

static bool becomes(gt_kill_switch_t *kill_switch, bool thrown)
{
	for (int ms = 0; ms < 1000; ms++) {
		if (gt_kill_switch_thrown(kill_switch) == thrown)
			return true;
		usleep(1000);
	}
	return false;
}

static void the_kill_switch_is_seen_within_a_second(void)
{
	static gt_kill_switch_t kill_switch;
	char path[] = "/tmp/gt-switch-XXXXXX";
	int fd = mkstemp(path);

	CHECK(fd >= 0);
	gt_kill_switch_watch(&kill_switch, path);
	CHECK(gt_kill_switch_thrown(&kill_switch));
	unlink(path);
	CHECK(becomes(&kill_switch, false));
	CHECK(!symlink("/", path));
	CHECK(becomes(&kill_switch, true));
	gt_kill_switch_watch(&kill_switch, "/tmp/gt-no-such-file");
	CHECK(!gt_kill_switch_thrown(&kill_switch));
	gt_kill_switch_stop(&kill_switch);
	gt_kill_switch_stop(&kill_switch);
	unlink(path);
	close(fd);
}

static void a_file_system_that_hangs_holds_nobody_up(void)
{
	static gt_kill_switch_t kill_switch;

	gt_kill_switch_watch(&kill_switch, "/tmp");
	alarm(20);
	hangs = true;
	usleep(1200000);	/* the thread has looked */
	CHECK(gt_kill_switch_thrown(&kill_switch));
	gt_kill_switch_stop(&kill_switch);
	hangs = false;
	alarm(0);
}

const claim_t kill_switch_claims[] = {
	TEST(the_kill_switch_is_seen_within_a_second),
	TEST(a_file_system_that_hangs_holds_nobody_up),
	{ NULL, NULL },
};
