#define _GNU_SOURCE
#include "kill_switch.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "settings.h"

#define TENTH_US 100000
#define CHECK_TENTHS 5		/* from one check to the next */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_t thread;
static bool running;

/* Shared with the thread, under the lock */
static char watched[GT_PATH_MAX];
static bool thrown;
static uintptr_t stops;		/* so many threads were told to end */

/* Called with the lock held, and gives it up while it checks: the file system may hang. */
static void check(void)
{
	char path[GT_PATH_MAX];
	bool is_there;

	memcpy(path, watched, sizeof(path));
	pthread_mutex_unlock(&lock);
	is_there = !access(path, F_OK);
	pthread_mutex_lock(&lock);
	if (!strcmp(path, watched))
		thrown = is_there;
}

/*
 * Sleeps in short pieces, so that it ends soon when it is stopped. One that hung meanwhile
 * ends, too, though another one watches by then
 */
static void *watch(void *stops_before)
{
	uintptr_t mine = (uintptr_t) stops_before;

	pthread_mutex_lock(&lock);
	for (unsigned tenths = 1; stops == mine; tenths++) {
		pthread_mutex_unlock(&lock);
		usleep(TENTH_US);
		pthread_mutex_lock(&lock);
		if (stops == mine && tenths % CHECK_TENTHS == 0)
			check();
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

extern void gt_kill_switch_watch(const char *path)
{
	pthread_mutex_lock(&lock);
	snprintf(watched, sizeof(watched), "%s", path);
	check();
	if (!running)
		running = !pthread_create(&thread, NULL, watch, (void *) stops);
	pthread_mutex_unlock(&lock);
}

extern bool gt_kill_switch_thrown(void)
{
	bool is_thrown;

	pthread_mutex_lock(&lock);
	is_thrown = thrown;
	pthread_mutex_unlock(&lock);
	return is_thrown;
}

extern void gt_kill_switch_stop(void)
{
	struct timespec patience;

	pthread_mutex_lock(&lock);
	stops++;
	pthread_mutex_unlock(&lock);
	clock_gettime(CLOCK_REALTIME, &patience);
	patience.tv_sec++;
	/* a thread that hangs in the file system stays behind; the Makefile links nodelete */
	if (running && pthread_timedjoin_np(thread, NULL, &patience))
		pthread_detach(thread);
	running = false;
}
