#define _GNU_SOURCE
#include "sender.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../claims.h"
#include "kill_switch.h"
#include "rpc.h"

#define NODES 5000		/* two lines */

typedef enum { TAKE, REFUSE, OTHER_DIGEST, SILENT, HANG_UP } mood_t;

/* An engine that takes tables. What threads share is guarded by `lock`. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	int listener, client;
	pthread_t thread;
	mood_t mood;
	int parts, tables;	/* taken */
	uint64_t number, digest;
} engine;

static gt_config_t config;
static gt_mirror_t mirror;
static char said[400];
static int troubles;

static uint64_t value_of(const char *text, const char *key, int base)
{
	const char *at = strstr(text, key);

	return at ? strtoull(at + strlen(key), NULL, base) : 0;
}

/* RET false to hang up */
static bool answer(int fd, const char *text)
{
	char reply[200];
	uint64_t id = value_of(text, " id=", 10);
	uint64_t part = value_of(text, " part=", 10);
	bool last = part == value_of(text, " parts=", 10);
	mood_t mood;

	pthread_mutex_lock(&lock);
	mood = engine.mood;
	engine.parts++;
	if (mood == TAKE && last) {
		engine.tables++;
		engine.number = value_of(text, " table=", 16);
	}
	snprintf(reply, sizeof(reply), last ? "ok id=%" PRIu64 " digest=%" PRIx64 "\n" :
		 "ok id=%" PRIu64 "\n", id, engine.digest + (mood == OTHER_DIGEST));
	pthread_mutex_unlock(&lock);
	if (mood == REFUSE)
		snprintf(reply, sizeof(reply),
			 "error id=%" PRIu64 " message=unknown%%20verb\n", id);
	return mood != HANG_UP &&
	       (mood == SILENT || send(fd, reply, strlen(reply), MSG_NOSIGNAL) > 0);
}

static void *serve(void *arg)
{
	static char text[1 << 20];
	int fd;

	(void) arg;
	while ((fd = accept(engine.listener, NULL, NULL)) >= 0) {
		size_t len = 0;
		ssize_t n;

		pthread_mutex_lock(&lock);
		engine.client = fd;
		pthread_mutex_unlock(&lock);
		while ((n = read(fd, text + len, sizeof(text) - 1 - len)) > 0) {
			len += (size_t) n;
			text[len] = '\0';
			if (text[len - 1] != '\n')
				continue;
			len = 0;
			if (!answer(fd, text))
				break;
		}
		close(fd);
	}
	return NULL;
}

static void listen_on(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	unlink(path);
	strcpy(address.sun_path, path);
	engine.listener = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(!bind(engine.listener, (struct sockaddr *) &address,
		    sizeof(address)));
	CHECK(!listen(engine.listener, 4));
	pthread_create(&engine.thread, NULL, serve, NULL);
}

static void engine_ends(void)
{
	shutdown(engine.listener, SHUT_RDWR);
	pthread_mutex_lock(&lock);
	shutdown(engine.client, SHUT_RDWR);
	pthread_mutex_unlock(&lock);
	close(engine.listener);
	pthread_join(engine.thread, NULL);
	unlink(config.socket);
}

static void look(uint32_t index, gt_node_t *node)
{
	static char name[16];

	snprintf(name, sizeof(name), "n%u", index);
	*node = (gt_node_t) { name, "a100", 8, 1, 0xff };
}

static void say(const char *text, gt_tone_t tone)
{
	pthread_mutex_lock(&lock);
	snprintf(said, sizeof(said), "%s", text);
	troubles += tone == GT_SAY_TROUBLE;
	pthread_mutex_unlock(&lock);
}

static int passes;
static int hangs;	/* a pass does not come back while this is set */

static int count(const int *of)
{
	int result;

	pthread_mutex_lock(&lock);
	result = *of;
	pthread_mutex_unlock(&lock);
	return result;
}

static void pass(void)
{
	pthread_mutex_lock(&lock);
	passes++;
	pthread_mutex_unlock(&lock);
	while (count(&hangs))
		usleep(1000);
}

static void engine_says(const char *text)
{
	pthread_mutex_lock(&lock);
	send(engine.client, text, strlen(text), MSG_NOSIGNAL);
	pthread_mutex_unlock(&lock);
}

static uint32_t breaker_s = 1;
static const char *switch_path = "/tmp/gt-no-such-file";

static void begin(mood_t mood)
{
	gt_kill_switch_watch(switch_path);
	gt_config_defaults(&config);
	config.breaker_s = breaker_s;
	config.deadline_ms = 10;
	snprintf(config.socket, sizeof(config.socket), "/tmp/gt-sender-%d.sock",
		 (int) getpid());
	memset(&engine, 0, sizeof(engine));
	engine.mood = mood;
	troubles = passes = 0;
	gt_mirror_init(&mirror);
	CHECK(gt_mirror_build(&mirror, NODES, look, true));
	engine.digest = mirror.digest;
	listen_on(config.socket);
	gt_sender_start(&mirror, &config, say, pass);
}

static void end(void)
{
	gt_sender_stop();
	gt_kill_switch_stop();
	engine_ends();
	gt_table_free(mirror.table);
	free(mirror.free);
	free(mirror.is_changed);
}

static void in_mood(mood_t mood)
{
	pthread_mutex_lock(&lock);
	engine.mood = mood;
	pthread_mutex_unlock(&lock);
}

/* RET true if *of becomes that much within so many tenths of a second */
static bool becomes(const int *of, int expected, int tenths)
{
	for (int ms = 0; ms < tenths * 100 && count(of) != expected; ms++)
		usleep(1000);
	return count(of) == expected;
}

/* It is said after the mirror knows. */
static bool says(const char *text, int tenths)
{
	bool found = false;

	for (int ms = 0; ms < tenths * 100 && !found; ms++) {
		pthread_mutex_lock(&lock);
		found = strstr(said, text);
		pthread_mutex_unlock(&lock);
		usleep(1000);
	}
	return found;
}

static bool known_within(int tenths)
{
	for (int ms = 0; ms < tenths * 100 && !gt_mirror_known(&mirror); ms++)
		usleep(1000);
	return gt_mirror_known(&mirror);
}

CLAIM(the_table_is_sent_once_and_is_then_known)
{
	begin(TAKE);
	CHECK(known_within(20));
	CHECK(count(&engine.parts) == 2 && count(&engine.tables) == 1);
	CHECK(engine.number == mirror.table->number);
	usleep(300000);
	CHECK(count(&engine.tables) == 1);
	CHECK(!troubles);
	end();
}

CLAIM(an_engine_that_lost_count_gets_the_same_table_again_at_once)
{
	breaker_s = 30;
	begin(TAKE);
	breaker_s = 1;
	CHECK(known_within(20));
	gt_mirror_answered(&mirror, true);
	CHECK(!gt_mirror_known(&mirror));
	CHECK(becomes(&engine.tables, 2, 10) && known_within(10));
	end();
}

CLAIM(an_engine_that_wants_the_table_after_every_question_gets_it_ever_less_often)
{
	int64_t began_us;

	begin(TAKE);
	CHECK(known_within(20));
	began_us = gt_now_us();
	while (count(&engine.tables) < 5 && gt_now_us() - began_us < 60000000) {
		gt_mirror_answered(&mirror, true);
		usleep(1000);
	}
	CHECK(count(&engine.tables) == 5);
	/* after 0.2, 0.4, 0.8 s, and breaker_s from then on: a busy machine takes longer */
	CHECK(gt_now_us() - began_us > 2200000);
	CHECK(known_within(100));
	end();
}

CLAIM(an_engine_that_starts_again_gets_the_table_again)
{
	int64_t began_us;

	begin(TAKE);
	CHECK(known_within(20));
	engine_ends();
	for (int ms = 0; ms < 1000 && gt_mirror_known(&mirror); ms++)
		usleep(1000);
	CHECK(!gt_mirror_known(&mirror));
	began_us = gt_now_us();
	listen_on(config.socket);
	CHECK(becomes(&engine.tables, 2, 20));
	/* twice what it takes at most: this machine may be busy */
	CHECK(gt_now_us() - began_us < 1000000);
	CHECK(known_within(20));
	CHECK(!troubles);
	end();
}

CLAIM(an_engine_that_refuses_or_is_silent_is_told_of_once_and_asked_again)
{
	static const mood_t moods[] = { REFUSE, OTHER_DIGEST, HANG_UP, SILENT };
	static const char *const whys[] = {
		"table of nodes: unknown verb;", "table of nodes: another digest",
		"part 1 of 2: connection lost",
		"part 1 of 2: no answer within the deadline",
	};

	for (int i = 0; i < 4; i++) {
		int before;

		begin(moods[i]);
		CHECK(becomes(&troubles, 1, 20));
		CHECK(strstr(said, whys[i]));
		before = count(&engine.parts);
		for (int ms = 0; ms < 3000 && count(&engine.parts) == before; ms++)
			usleep(1000);
		CHECK(count(&engine.parts) > before);
		CHECK(count(&troubles) == 1 && !gt_mirror_known(&mirror));
		in_mood(TAKE);
		CHECK(known_within(30));
		CHECK(says("the engine has the table of 5000 nodes", 30));
		end();
	}
}

CLAIM(an_engine_that_ends_in_the_middle_of_a_table_gets_it_soon_after_its_start)
{
	breaker_s = 30;
	begin(HANG_UP);
	breaker_s = 1;
	CHECK(becomes(&troubles, 1, 20));
	in_mood(TAKE);
	CHECK(known_within(10));
	CHECK(mirror.taken == 1);
	end();
}

CLAIM(nothing_is_sent_and_no_pass_begun_while_the_kill_switch_is_set)
{
	char path[] = "/tmp/gt-sender-switch-XXXXXX";
	int fd = mkstemp(path);

	CHECK(fd >= 0);
	switch_path = path;
	begin(TAKE);
	switch_path = "/tmp/gt-no-such-file";
	usleep(400000);
	CHECK(!count(&engine.parts));
	unlink(path);
	CHECK(known_within(20));
	CHECK(!symlink("/", path));
	gt_kill_switch_watch(path);
	engine_says("schedule\n");
	for (int ms = 0; ms < 2000 && gt_mirror_known(&mirror); ms++)
		usleep(1000);
	CHECK(!gt_mirror_known(&mirror) && !count(&passes));
	end();
	unlink(path);
	close(fd);
}

CLAIM(an_engine_that_asks_for_a_pass_gets_it_at_once_and_not_too_often)
{
	int64_t began_us;

	begin(TAKE);
	CHECK(known_within(20));
	began_us = gt_now_us();
	engine_says("schedule\n");
	CHECK(becomes(&passes, 1, 5));
	for (int i = 0; i < 200; i++) {
		engine_says("schedule\nschedule\n");
		usleep(1000);
	}
	usleep(250000);
	/* none is lost, and there are no more than one in a tenth of a second */
	CHECK(count(&passes) >= 2 &&
	      count(&passes) <= 2 + (gt_now_us() - began_us) / 100000);
	CHECK(count(&engine.tables) == 1 && gt_mirror_known(&mirror));
	end();
}

/* slurmctld may hold the locks that a pass waits for while it unloads its plugins. */
CLAIM(a_thread_that_did_not_end_keeps_the_next_one_from_starting)
{
	hangs = 1;
	begin(TAKE);
	CHECK(known_within(20));
	engine_says("schedule\n");
	CHECK(becomes(&passes, 1, 20));
	gt_sender_stop();
	CHECK(!gt_sender_start(&mirror, &config, say, pass));
	pthread_mutex_lock(&lock);
	hangs = 0;
	pthread_mutex_unlock(&lock);
	for (int ms = 0; ms < 2000 &&
	     !gt_sender_start(&mirror, &config, say, pass); ms++)
		usleep(1000);
	CHECK(becomes(&engine.tables, 2, 20) && known_within(20));
	end();
}

CLAIM(an_engine_that_says_anything_else_unasked_is_hung_up_on)
{
	begin(TAKE);
	CHECK(known_within(20));
	engine_says("schedule everything\n");
	CHECK(becomes(&engine.tables, 2, 20) && known_within(20));
	CHECK(!count(&passes) && !troubles);
	end();
}

CLAIM(nobody_who_listens_is_no_trouble)
{
	begin(TAKE);
	CHECK(known_within(20));
	engine_ends();
	usleep(1500000);
	CHECK(!troubles);
	listen_on(config.socket);
	end();
}
