#define _GNU_SOURCE
#include "sender.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kill_switch.h"
#include "rpc.h"

#define TENTH_US 100000
/* For the answer to one part: so many deadlines of a question, but no more than that */
#define PART_DEADLINES 100
#define PART_MS_MAX 5000
#define LOG_AGAIN_US (600 * 1000000LL)
#define PATIENCE_S 6		/* for the thread's end; more than for one part */
#define KNOCK_US TENTH_US	/* from one connection to the next */
/* Before a table is sent once more: at first, then twice as long each time, up to breaker_s */
#define AGAIN_US (2 * TENTH_US)
/* From one scheduling pass that the engine asks for to the next: it holds Slurm's locks. */
#define PASS_US TENTH_US

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_t thread;
static bool running;
static bool left_behind;	/* an earlier thread has not ended yet: all this is still its own */

/* Shared with the thread, under the lock */
static gt_config_t settings;
static gt_mirror_t *nodes;
static gt_say_t say_it;
static gt_pass_t begin_pass;
static bool stopping;

/* The thread's own */
static gt_channel_t channel;
static gt_line_t line;
static gt_reply_t reply;
static char socket_path[GT_PATH_MAX];	/* of the connection */
static int64_t logged_us;	/* when trouble was last logged; 0: there is none */
static uint64_t sent_number;	/* of the table that the engine got on this connection */
static int64_t sent_us;		/* and when */
static int64_t again_us;	/* how long the same table, or one that failed, waits */
static int64_t passed_us;	/* when a pass was last begun */

static bool is_stopping(void)
{
	bool result;

	pthread_mutex_lock(&lock);
	result = stopping;
	pthread_mutex_unlock(&lock);
	return result;
}

static bool must_be_silent(void)
{
	return gt_kill_switch_thrown() || is_stopping();
}

/* One that the engine asks for too soon after another comes later. */
static void give_pass(gt_pass_t pass)
{
	if (!channel.wants_pass || gt_now_us() - passed_us < PASS_US)
		return;
	channel.wants_pass = false;
	passed_us = gt_now_us();
	if (pass)
		pass();
}

static void hang_up(gt_mirror_t *mirror)
{
	if (channel.fd < 0)
		return;
	gt_channel_close(&channel);
	gt_mirror_lost(mirror);
	sent_number = 0;
	channel.breaker_until_us = gt_now_us() + KNOCK_US;
}

/*
 * RET NULL, or why the engine does not have the part: "" if nobody listens, or if
 * nothing shall be said
 */
static const char *send_part(const gt_config_t *config, const gt_copy_t *copy,
			     gt_part_t *part)
{
	static char wrong[sizeof(channel.wrong) + 40];
	gt_result_t result;

	if (must_be_silent())
		return "";
	part->id = ++channel.last_id;
	part->count = gt_table_rows_of_line(copy->table, part->first);
	gt_table_line(&line, copy->table, copy->free, part);
	if (!gt_line_end(&line))
		return "no memory for a line";
	result = gt_channel_ask(&channel, config, &line, part->id,
				config->deadline_ms * 1000LL, &reply);
	/* not yet, or not any more: the next question says so */
	if (result == GT_DOWN && channel.refused)
		return "";
	if (result != GT_ANSWERED) {
		snprintf(wrong, sizeof(wrong), "part %u of %u: %s", part->part,
			 part->parts, channel.wrong);
		return wrong;
	}
	if (reply.kind == GT_REPLY_ERROR)
		return reply.note;
	return reply.kind == GT_REPLY_OK ? NULL : "an answer that is not ok";
}

static const char *send_parts(const gt_config_t *config, const gt_copy_t *copy)
{
	gt_part_t part = { .parts = gt_table_parts(copy->table) };
	const char *wrong;

	while (part.first < copy->table->count) {
		part.part++;
		if ((wrong = send_part(config, copy, &part)))
			return wrong;
		part.first += part.count;
	}
	if (!reply.has_digest || reply.digest != copy->digest)
		return "another digest than ours";
	return NULL;
}

/* Once per outage, and again every ten minutes of it */
static void complain(gt_say_t say, const char *wrong)
{
	char text[400];

	if (logged_us && gt_now_us() - logged_us < LOG_AGAIN_US)
		return;
	logged_us = gt_now_us();
	snprintf(text, sizeof(text), "the engine did not take the table of nodes: %s; until it does it is asked about Slurm's own nodes alone",
		 wrong);
	say(text, GT_SAY_TROUBLE);
}

/* One table more that is not the last word: the next one waits longer. */
static void wait_longer(const gt_config_t *config)
{
	int64_t most_us = config->breaker_s * 1000000LL;

	again_us = again_us ? 2 * again_us : AGAIN_US;
	if (again_us > most_us)
		again_us = most_us;
}

/* An engine that wants the same table after every question gets it now and then. */
static bool is_soon(gt_mirror_t *mirror)
{
	return gt_now_us() < channel.breaker_until_us ||
	       (sent_number == gt_mirror_number(mirror) &&
		gt_now_us() - sent_us < again_us);
}

/* The engine has a table: was it another one, or did the one before serve for a while? */
static void note_sent(const gt_config_t *config, uint64_t number)
{
	int64_t now_us = gt_now_us();

	if (sent_number != number ||
	    now_us - sent_us > 2 * config->breaker_s * 1000000LL)
		again_us = 0;
	wait_longer(config);
	sent_number = number;
	sent_us = now_us;
}

static void send_table(const gt_config_t *config, gt_mirror_t *mirror,
		       gt_say_t say)
{
	const char *wrong;
	gt_copy_t copy;
	char text[80];

	if (is_soon(mirror) || !gt_mirror_copy(mirror, &copy))
		return;
	if (!(wrong = send_parts(config, &copy))) {
		gt_mirror_sent(mirror, &copy);
		snprintf(text, sizeof(text),
			 "the engine has the table of %u nodes",
			 copy.table->count);
		say(text, logged_us ? GT_SAY_NEWS : GT_SAY_DETAIL);
		logged_us = 0;
		note_sent(config, copy.table->number);
	} else {
		gt_channel_close(&channel);
		gt_mirror_lost(mirror);
		if (wrong[0]) {
			wait_longer(config);
			complain(say, wrong);
		}
		channel.breaker_until_us = gt_now_us() +
					   (wrong[0] ? again_us : KNOCK_US);
	}
	gt_mirror_give_back(mirror, &copy);
}

static void *run(void *arg)
{
	gt_mirror_t *mirror = NULL;

	(void) arg;
	while (!is_stopping()) {
		gt_config_t config;
		gt_say_t say;
		gt_pass_t pass;
		/* always: this is what the thread sleeps in */
		bool closed = !gt_channel_hear(&channel, TENTH_US);

		pthread_mutex_lock(&lock);
		config = settings;
		mirror = nodes;
		say = say_it;
		pass = begin_pass;
		pthread_mutex_unlock(&lock);
		if (must_be_silent() || closed || strcmp(socket_path, config.socket))
			hang_up(mirror);
		memcpy(socket_path, config.socket, sizeof(socket_path));
		if (must_be_silent())
			continue;
		give_pass(pass);
		send_table(&config, mirror, say);
	}
	hang_up(mirror);	/* the next thread is to send its table anew */
	gt_line_free(&line);
	pthread_mutex_lock(&lock);
	left_behind = false;
	pthread_mutex_unlock(&lock);
	return NULL;
}

extern bool gt_sender_start(gt_mirror_t *mirror, const gt_config_t *config,
			    gt_say_t say, gt_pass_t pass)
{
	pthread_mutex_lock(&lock);
	if (left_behind) {
		pthread_mutex_unlock(&lock);
		return false;
	}
	settings = *config;
	settings.deadline_ms *= PART_DEADLINES;
	if (settings.deadline_ms > PART_MS_MAX)
		settings.deadline_ms = PART_MS_MAX;
	nodes = mirror;
	say_it = say;
	begin_pass = pass;
	if (!running) {
		stopping = false;
		gt_channel_init(&channel);
		running = !pthread_create(&thread, NULL, run, NULL);
	}
	pthread_mutex_unlock(&lock);
	return running;
}

extern void gt_sender_stop(void)
{
	struct timespec patience;

	pthread_mutex_lock(&lock);
	stopping = true;
	pthread_mutex_unlock(&lock);
	clock_gettime(CLOCK_REALTIME, &patience);
	patience.tv_sec += PATIENCE_S;
	if (!running)
		return;
	running = false;
	/* a thread that cannot end stays behind; the Makefile links nodelete */
	pthread_mutex_lock(&lock);
	left_behind = true;
	pthread_mutex_unlock(&lock);
	if (pthread_timedjoin_np(thread, NULL, &patience))
		pthread_detach(thread);
}
