#define _GNU_SOURCE
#include "rpc.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../claims.h"

/* What a scripted engine sends for each line it reads; NULL: nothing */
typedef struct {
	int listener;
	const char *answers[4];
	int close_after;	/* answers per connection, 0: never close */
	bool dies;		/* at a question's first byte */
	int delay_ms;
	int buffer;		/* of the socket; 0: the usual size */
	pthread_t thread;
	char heard[4096];
} server_t;

static void serve(server_t *server, int fd, int *next)
{
	const char *text;
	char byte;

	if (server->buffer)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &server->buffer,
			   sizeof(server->buffer));
	for (int n = 1; read(fd, &byte, 1) == 1;) {
		size_t len = strlen(server->heard);

		if (server->dies)
			break;
		if (len + 1 < sizeof(server->heard))
			server->heard[len] = byte;
		if (byte != '\n')
			continue;
		usleep((useconds_t) server->delay_ms * 1000);
		text = *next < 4 ? server->answers[*next] : NULL;
		(*next)++;
		if (text && send(fd, text, strlen(text), MSG_NOSIGNAL) < 0)
			break;
		if (n++ == server->close_after)
			break;
	}
	close(fd);
}

static void *run_server(void *arg)
{
	server_t *server = arg;
	int fd, next = 0;

	while ((fd = accept(server->listener, NULL, NULL)) >= 0)
		serve(server, fd, &next);
	return NULL;
}

static gt_config_t config;
static gt_channel_t channel;
static gt_reply_t reply;

static void start(server_t *server)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	gt_config_defaults(&config);
	config.deadline_ms = 1000;
	snprintf(config.socket, sizeof(config.socket), "/tmp/gt-test-%d.sock",
		 (int) getpid());
	unlink(config.socket);
	strcpy(address.sun_path, config.socket);
	server->listener = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(!bind(server->listener, (struct sockaddr *) &address,
		    sizeof(address)));
	CHECK(!listen(server->listener, 4));
	pthread_create(&server->thread, NULL, run_server, server);
	gt_channel_init(&channel);
}

static void stop(server_t *server)
{
	gt_channel_close(&channel);
	shutdown(server->listener, SHUT_RDWR);
	close(server->listener);
	pthread_join(server->thread, NULL);
	unlink(config.socket);
}

static gt_result_t ask(uint64_t id)
{
	gt_line_t line = { 0 };
	gt_result_t rc;

	gt_line_begin(&line, "place");
	gt_line_number(&line, "id", id);
	CHECK(gt_line_end(&line));
	rc = gt_channel_ask(&channel, &config, &line, id, 1000000, &reply);
	gt_line_free(&line);
	return rc;
}

CLAIM(answers_come_over_one_kept_connection)
{
	server_t server = { .answers = { "pass id=1\n", "wait id=2 s=5\n" } };
	int fd;

	start(&server);
	CHECK(ask(1) == GT_ANSWERED && reply.kind == GT_REPLY_PASS);
	fd = channel.fd;
	CHECK(ask(2) == GT_ANSWERED && reply.wait_s == 5);
	CHECK(channel.fd == fd);
	stop(&server);
	CHECK_TEXT(server.heard, "place id=1\nplace id=2\n");
}

CLAIM(late_answers_are_skipped_by_their_id)
{
	server_t server = { .answers = { "pass id=3\nuse id=4 node=a/1\n" } };

	start(&server);
	CHECK(ask(4) == GT_ANSWERED && reply.kind == GT_REPLY_USE);
	stop(&server);
}

CLAIM(a_wish_directly_behind_an_answer_is_heard)
{
	server_t server = { .answers = { "pass id=1\nsched",
					 "use id=2 node=a/1\nok id=1\nschedule\nsched" } };

	start(&server);
	CHECK(ask(1) == GT_ANSWERED && !channel.wants_pass);
	gt_channel_close(&channel);
	CHECK(ask(2) == GT_ANSWERED && channel.wants_pass);
	CHECK(reply.kind == GT_REPLY_USE && reply.pick_count == 1);
	CHECK_TEXT(reply.picks[0].name, "a");
	stop(&server);
}

CLAIM(silence_ends_at_the_deadline_and_opens_the_breaker)
{
	server_t server = { .answers = { "use id=1 no" } };
	int64_t before_us = gt_now_us();

	start(&server);
	config.deadline_ms = 30;
	CHECK(ask(1) == GT_TIMEOUT);
	CHECK(gt_now_us() - before_us >= 30000);
	CHECK(channel.fd < 0);
	CHECK(ask(2) == GT_BREAKER);
	CHECK(gt_channel_should_log(&channel));
	CHECK(!gt_channel_should_log(&channel));
	channel.breaker_until_us = 0;
	server.answers[1] = "pass id=3\n";
	config.deadline_ms = 1000;
	CHECK(ask(3) == GT_ANSWERED && !channel.failing);
	CHECK(gt_channel_should_log(&channel));
	stop(&server);
}

CLAIM(one_late_answer_of_a_working_engine_is_forgiven)
{
	server_t server = { .answers = { "pass id=1\n", "use id=2 no" } };

	start(&server);
	CHECK(ask(1) == GT_ANSWERED);
	config.deadline_ms = 30;
	CHECK(ask(2) == GT_TIMEOUT && channel.failing);
	CHECK(ask(3) == GT_TIMEOUT);
	CHECK(ask(4) == GT_BREAKER);
	stop(&server);
}

CLAIM(a_stale_connection_is_replaced_within_the_question)
{
	server_t server = { .answers = { "pass id=1\n", "pass id=2\n" },
			    .close_after = 1 };

	start(&server);
	CHECK(ask(1) == GT_ANSWERED);
	usleep(20000);
	CHECK(ask(2) == GT_ANSWERED && reply.id == 2);
	stop(&server);
}

CLAIM(an_engine_that_dies_is_told_from_one_that_closes)
{
	server_t server = { .answers = { NULL }, .dies = true };

	start(&server);
	CHECK(ask(1) == GT_DOWN);
	CHECK_TEXT(channel.wrong, "connection lost: Connection reset by peer");
	channel.breaker_until_us = 0;
	server.dies = false;
	server.close_after = 1;
	CHECK(ask(2) == GT_DOWN);
	CHECK_TEXT(channel.wrong, "connection lost: closed by the engine");
	stop(&server);
}

CLAIM(nobody_listening_is_told_at_once)
{
	gt_config_defaults(&config);
	snprintf(config.socket, sizeof(config.socket), "/nonexistent/e.sock");
	gt_channel_init(&channel);
	CHECK(ask(1) == GT_DOWN);
	CHECK(strstr(channel.wrong, "/nonexistent/e.sock: No such file"));
	CHECK(ask(2) == GT_BREAKER);
}

CLAIM(garbage_closes_the_connection)
{
	server_t server = { .answers = { "what?\n", "use id=2 node=\n",
					 "pass id=9\n" } };

	start(&server);
	for (uint64_t id = 1; id <= 3; id++) {
		CHECK(ask(id) == GT_GARBAGE);
		CHECK(channel.fd < 0 && channel.wrong[0]);
		channel.breaker_until_us = 0;
	}
	stop(&server);
}

CLAIM(a_reply_without_an_end_is_garbage)
{
	static char endless[GT_REPLY_MAX + 32 * 1024];
	/* in pieces, of which the last one is larger than what is left of the buffer */
	server_t server = { .answers = { endless }, .buffer = 8 * 1024 };

	memset(endless, 'a', sizeof(endless) - 1);
	start(&server);
	CHECK(ask(1) == GT_GARBAGE);
	CHECK_TEXT(channel.wrong, "a reply over 65536 bytes");
	stop(&server);
}

CLAIM(a_new_channel_is_no_file)
{
	gt_channel_init(&channel);
	gt_channel_close(&channel);
	CHECK(fcntl(STDIN_FILENO, F_GETFD) >= 0);
}

CLAIM(notices_never_block)
{
	server_t server = { .answers = { NULL }, .delay_ms = 20 };
	gt_line_t line = { 0 };

	start(&server);
	gt_line_begin(&line, "started");
	gt_line_number(&line, "job", 1);
	for (int i = 0; i < 3000; i++)
		gt_line_placed(&line, "dgx1", 0xff);
	CHECK(gt_line_end(&line));
	/* a send that waits for the reader would drop none of them */
	for (int i = 0; i < 100; i++)
		gt_channel_tell(&channel, &config, &line);
	CHECK(channel.notices_dropped > 0);
	gt_line_free(&line);
	stop(&server);
}

CLAIM(a_notice_is_dropped_only_where_nobody_listens)
{
	server_t server = { .answers = { NULL } };
	gt_line_t line = { 0 };

	start(&server);
	gt_line_begin(&line, "started");
	gt_line_number(&line, "job", 1);
	CHECK(gt_line_end(&line));
	gt_channel_tell(&channel, &config, &line);
	gt_channel_tell(&channel, &config, &line);
	CHECK(channel.notices_dropped == 0);
	stop(&server);
	strcpy(config.socket, "/nonexistent/engine.sock");
	gt_channel_tell(&channel, &config, &line);
	CHECK(channel.notices_dropped == 1);
	gt_line_free(&line);
	gt_channel_close(&channel);
}
