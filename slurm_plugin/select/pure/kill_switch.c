#define _GNU_SOURCE
#include "kill_switch.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS 500000000L
#define NS 1000000000L

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_cond_t stopped;

/* By a clock that nobody sets: set back by an hour, it would be an hour's wait. */
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

/* Called and left with the lock held, which is free while the file is looked for. */
static void look(gt_kill_switch_t *kill_switch)
{
	char path[GT_PATH_MAX];
	bool thrown;

	memcpy(path, kill_switch->path, sizeof(path));
	pthread_mutex_unlock(&lock);
	thrown = !access(path, F_OK);
	pthread_mutex_lock(&lock);
	if (!strcmp(path, kill_switch->path))
		kill_switch->thrown = thrown;
}

static void *watch(void *arg)
{
	gt_kill_switch_t *kill_switch = arg;

	pthread_mutex_lock(&lock);
	while (!kill_switch->stopping) {
		struct timespec until = after(CLOCK_MONOTONIC, LOOK_NS);

		pthread_cond_timedwait(&stopped, &lock, &until);
		if (!kill_switch->stopping)
			look(kill_switch);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

extern void gt_kill_switch_watch(gt_kill_switch_t *kill_switch,
				 const char *path)
{
	pthread_once(&once, init);
	pthread_mutex_lock(&lock);
	snprintf(kill_switch->path, sizeof(kill_switch->path), "%s", path);
	look(kill_switch);
	kill_switch->stopping = false;
	if (!kill_switch->running)
		kill_switch->running = !pthread_create(&kill_switch->thread,
						       NULL, watch,
						       kill_switch);
	pthread_mutex_unlock(&lock);
}

extern bool gt_kill_switch_thrown(gt_kill_switch_t *kill_switch)
{
	bool thrown;

	pthread_mutex_lock(&lock);
	thrown = kill_switch->thrown;
	pthread_mutex_unlock(&lock);
	return thrown;
}

extern void gt_kill_switch_stop(gt_kill_switch_t *kill_switch)
{
	struct timespec patience = after(CLOCK_REALTIME, NS);

	pthread_mutex_lock(&lock);
	kill_switch->stopping = true;
	pthread_once(&once, init);
	pthread_cond_broadcast(&stopped);
	pthread_mutex_unlock(&lock);
	/* one that hangs in the file system is left behind (see -z nodelete) */
	if (kill_switch->running &&
	    pthread_timedjoin_np(kill_switch->thread, NULL, &patience))
		pthread_detach(kill_switch->thread);
	kill_switch->running = false;
}
