#define _GNU_SOURCE
#include "kill_switch.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "settings.h"

#define CHECK_NS 500000000L
#define NS 1000000000L

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_cond_t stopped;
static pthread_t thread;
static bool running;

/* Shared with the thread, under the lock */
static char watched[GT_PATH_MAX];
static bool stopping, thrown;

/* The monotonic clock: if the other is set back by an hour, a wait would take an hour. */
static void init(void)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&stopped, &attr);
	pthread_condattr_destroy(&attr);
}

static struct timespec after(clockid_t clock, long ns)
{
	struct timespec when;

	clock_gettime(clock, &when);
	when.tv_sec += (when.tv_nsec + ns) / NS;
	when.tv_nsec = (when.tv_nsec + ns) % NS;
	return when;
}

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

static void *watch(void *arg)
{
	(void) arg;
	pthread_mutex_lock(&lock);
	while (!stopping) {
		struct timespec until = after(CLOCK_MONOTONIC, CHECK_NS);

		pthread_cond_timedwait(&stopped, &lock, &until);
		if (!stopping)
			check();
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

extern void gt_kill_switch_watch(const char *path)
{
	pthread_once(&once, init);
	pthread_mutex_lock(&lock);
	snprintf(watched, sizeof(watched), "%s", path);
	check();
	stopping = false;
	if (!running)
		running = !pthread_create(&thread, NULL, watch, NULL);
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
	struct timespec patience = after(CLOCK_REALTIME, NS);

	pthread_mutex_lock(&lock);
	stopping = true;
	pthread_once(&once, init);
	pthread_cond_broadcast(&stopped);
	pthread_mutex_unlock(&lock);
	/* a thread that hangs in the file system stays behind; the Makefile links nodelete */
	if (running && pthread_timedjoin_np(thread, NULL, &patience))
		pthread_detach(thread);
	running = false;
}
