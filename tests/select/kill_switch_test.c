#define _GNU_SOURCE
#include "kill_switch.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../claims.h"

#define HANGS "/tmp"

/* Stands in for libc's: one directory's file system hangs while `hangs` is set. */
static volatile bool hangs;
static volatile int checks;

int access(const char *path, int mode)
{
	checks++;
	while (hangs && !strcmp(path, HANGS))
		usleep(1000);
	return faccessat(AT_FDCWD, path, mode, 0);
}

/* The wall clock is wrong by `ahead_s`, until somebody sets it back. */
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

static int threads(void)
{
	DIR *tasks = opendir("/proc/self/task");
	int count = -2;		/* "." and ".." */

	while (readdir(tasks))
		count++;
	closedir(tasks);
	return count;
}

CLAIM(one_thread_watches_whatever_is_watched)
{
	int before = threads();

	gt_kill_switch_watch("/tmp/gt-no-such-file");
	gt_kill_switch_watch("/tmp/gt-no-such-file");
	CHECK(threads() == before + 1);
	gt_kill_switch_stop();
}

/* And it does not check without a pause either. */
CLAIM(a_clock_that_is_set_back_delays_no_check)
{
	ahead_s = 3600;
	gt_kill_switch_watch("/tmp/gt-no-such-file");
	checks = 0;
	usleep(1100000);
	CHECK(checks > 0 && checks < 20);
	ahead_s = 0;
	gt_kill_switch_stop();
}

CLAIM(a_file_system_that_hangs_holds_nobody_up)
{
	int before;

	gt_kill_switch_watch(HANGS);
	alarm(20);
	hangs = true;
	usleep(1200000);	/* the thread has begun a check */
	before = threads();
	CHECK(gt_kill_switch_thrown());
	gt_kill_switch_stop();
	/* another one watches, and the one that hangs ends as soon as it can */
	gt_kill_switch_watch("/tmp/gt-no-such-file");
	CHECK(threads() == before + 1);
	hangs = false;
	for (int ms = 0; ms < 2000 && threads() > before; ms++)
		usleep(1000);
	CHECK(threads() == before && !gt_kill_switch_thrown());
	gt_kill_switch_stop();
	alarm(0);
}
