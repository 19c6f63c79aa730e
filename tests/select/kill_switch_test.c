#define _GNU_SOURCE
#include "kill_switch.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../claims.h"

/* A file system that hangs, while `hangs` is set: this stands in for libc's. */
static volatile bool hangs;
static volatile int looks;

int access(const char *path, int mode)
{
	looks++;
	while (hangs)
		usleep(1000);
	return faccessat(AT_FDCWD, path, mode, 0);
}

/* The wall clock before somebody sets it back by `ahead_s`; waits go by the true one. */
static volatile time_t ahead_s;

int clock_gettime(clockid_t clock, struct timespec *now)
{
	long rc = syscall(SYS_clock_gettime, clock, now);

	if (clock == CLOCK_REALTIME)
		now->tv_sec += ahead_s;
	return (int) rc;
}

static bool becomes(bool thrown)
{
	for (int ms = 0; ms < 1000; ms++) {
		if (gt_kill_switch_thrown() == thrown)
			return true;
		usleep(1000);
	}
	return false;
}

CLAIM(the_kill_switch_is_seen_within_a_second)
{
	char path[] = "/tmp/gt-switch-XXXXXX";
	int fd = mkstemp(path);

	CHECK(fd >= 0);
	gt_kill_switch_watch(path);
	CHECK(gt_kill_switch_thrown());
	unlink(path);
	CHECK(becomes(false));
	CHECK(!symlink("/", path));
	CHECK(becomes(true));
	gt_kill_switch_watch("/tmp/gt-no-such-file");
	CHECK(!gt_kill_switch_thrown());
	gt_kill_switch_stop();
	gt_kill_switch_stop();
	unlink(path);
	close(fd);
}

/* Nor does a wait end at once, as by another clock than its end is told in. */
CLAIM(a_clock_set_back_holds_no_look_up)
{
	ahead_s = 3600;
	gt_kill_switch_watch("/tmp/gt-no-such-file");
	looks = 0;
	usleep(1100000);
	CHECK(looks > 0 && looks < 20);
	ahead_s = 0;
	gt_kill_switch_stop();
}

CLAIM(a_file_system_that_hangs_holds_nobody_up)
{
	gt_kill_switch_watch("/tmp");
	alarm(20);
	hangs = true;
	usleep(1200000);	/* the thread has looked */
	CHECK(gt_kill_switch_thrown());
	gt_kill_switch_stop();
	hangs = false;
	alarm(0);
}
