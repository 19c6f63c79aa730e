#define _GNU_SOURCE
#include "alarm.h"

#include <pthread.h>

#include "compat.h"

#define ALARMS 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_t thread;
static bool running, stopping;
static time_t alarms[ALARMS];	/* 0: unused */

static time_t earliest(void)
{
	time_t first = 0;

	for (int i = 0; i < ALARMS; i++)
		if (alarms[i] && (!first || alarms[i] < first))
			first = alarms[i];
	return first;
}

/* RET true if one was due; all that are due are gone then */
static bool take_due(time_t now)
{
	bool due = false;

	for (int i = 0; i < ALARMS; i++)
		if (alarms[i] && alarms[i] <= now) {
			alarms[i] = 0;
			due = true;
		}
	return due;
}

static void *watch(void *arg)
{
	(void) arg;
	pthread_mutex_lock(&lock);
	while (!stopping) {
		struct timespec until = { .tv_sec = earliest() };

		if (take_due(time(NULL))) {
			pthread_mutex_unlock(&lock);
			queue_job_scheduler();
			pthread_mutex_lock(&lock);
		} else if (until.tv_sec) {
			pthread_cond_timedwait(&changed, &lock, &until);
		} else {
			pthread_cond_wait(&changed, &lock);
		}
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

static void add(time_t when)
{
	int last = 0;

	for (int i = 0; i < ALARMS; i++) {
		if (alarms[i] == when)
			return;
		if (!alarms[i]) {
			alarms[i] = when;
			return;
		}
		if (alarms[i] > alarms[last])
			last = i;
	}
	/* all taken: the latest one gives way; Slurm looks every minute anyway */
	if (when < alarms[last])
		alarms[last] = when;
}

extern void gt_alarm_set(time_t when)
{
	if (!queue_job_scheduler)
		return;
	pthread_mutex_lock(&lock);
	add(when);
	if (!running)
		running = !pthread_create(&thread, NULL, watch, NULL);
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
}

extern void gt_alarm_stop(void)
{
	bool join;

	pthread_mutex_lock(&lock);
	join = running;
	running = false;
	stopping = true;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
	if (join)
		pthread_join(thread, NULL);
	stopping = false;
	memset(alarms, 0, sizeof(alarms));
}
