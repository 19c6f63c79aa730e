/* Bytes between two connections: all of them, in order, both ways, however they end. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../claims.h"
#include "pump.h"

/* The task's and the server's ends of two TCP connections, and what the pump has between them */
typedef struct {
	int task, server;
	int between[2];
	pthread_t thread;
	bool is_whole;
} wired_t;

static void *pumped(void *given)
{
	wired_t *wired = given;

	wired->is_whole = gt_pump(wired->between[0], wired->between[1]);
	close(wired->between[0]);
	close(wired->between[1]);
	return NULL;
}

/* A TCP connection of this host: splice and resets are as on a network. */
static void connected(int *one, int *other)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t size = sizeof(at);
	int listening = socket(AF_INET, SOCK_STREAM, 0);

	*one = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(!bind(listening, (struct sockaddr *) &at, size) && !listen(listening, 1));
	CHECK(!getsockname(listening, (struct sockaddr *) &at, &size));
	CHECK(!connect(*one, (struct sockaddr *) &at, size));
	*other = accept(listening, NULL, NULL);
	close(listening);
}

static void wire_up(wired_t *wired)
{
	connected(&wired->task, &wired->between[0]);
	connected(&wired->between[1], &wired->server);
	CHECK(!pthread_create(&wired->thread, NULL, pumped, wired));
}

static void take_down(wired_t *wired)
{
	close(wired->task);
	close(wired->server);
	pthread_join(wired->thread, NULL);
}

static unsigned char byte_at(size_t place)
{
	return (unsigned char) (place * 2654435761u >> 13);
}

enum { MANY = 24 << 20, PART = 70001 };

static void *sends_many(void *given)
{
	static unsigned char part[PART];
	int fd = *(int *) given;

	for (size_t sent = 0; sent < MANY; ) {
		size_t len = MANY - sent < PART ? MANY - sent : PART;
		ssize_t count;

		for (size_t i = 0; i < len; i++)
			part[i] = byte_at(sent + i);
		for (size_t done = 0; done < len; done += (size_t) count) {
			count = send(fd, part + done, len - done, MSG_NOSIGNAL);
			if (count <= 0)
				return NULL;
		}
		sent += len;
	}
	shutdown(fd, SHUT_WR);
	return NULL;
}

/* How many bytes came, all of them the right ones, until the end; -1 for others or a reset */
static long heard_at(int fd)
{
	static unsigned char part[PART];
	long heard = 0;
	ssize_t count;

	while ((count = recv(fd, part, sizeof(part), 0)) > 0) {
		for (ssize_t i = 0; i < count; i++) {
			if (part[i] != byte_at((size_t) (heard + i)))
				return -1;
		}
		heard += count;
	}
	return count < 0 ? -1 : heard;
}

CLAIM(every_byte_arrives_in_order_and_the_end_after_the_last)
{
	wired_t wired;
	pthread_t sender;

	wire_up(&wired);
	pthread_create(&sender, NULL, sends_many, &wired.task);
	CHECK(heard_at(wired.server) == MANY);
	pthread_join(sender, NULL);
	take_down(&wired);
	CHECK(wired.is_whole);
}

CLAIM(a_side_that_says_no_more_still_listens)
{
	wired_t wired;
	pthread_t sender;
	char word[8] = "";

	wire_up(&wired);
	CHECK(send(wired.task, "list", 4, 0) == 4 && !shutdown(wired.task, SHUT_WR));
	CHECK(recv(wired.server, word, 4, MSG_WAITALL) == 4 && !strcmp(word, "list"));
	CHECK(recv(wired.server, word, 1, 0) == 0);
	pthread_create(&sender, NULL, sends_many, &wired.server);
	CHECK(heard_at(wired.task) == MANY);
	pthread_join(sender, NULL);
	take_down(&wired);
	CHECK(wired.is_whole);
}

CLAIM(small_calls_come_back_one_by_one)
{
	wired_t wired;
	char word[64] = "call", answer[64];

	wire_up(&wired);
	for (int i = 0; i < 2000; i++) {
		word[10] = (char) i;
		CHECK(send(wired.task, word, 64, 0) == 64);
		CHECK(recv(wired.server, answer, 64, MSG_WAITALL) == 64 && !memcmp(word, answer, 64));
		CHECK(send(wired.server, answer, 64, 0) == 64);
		CHECK(recv(wired.task, answer, 64, MSG_WAITALL) == 64 && answer[10] == (char) i);
	}
	take_down(&wired);
}

enum { WORDS = 4000 };

/* Words of 1 to 6000 bytes with a pause between them: some are copied on, others go by the pipe. */
static void *sends_words(void *given)
{
	static unsigned char word[6000];
	int fd = *(int *) given;
	size_t sent = 0;

	for (size_t i = 0; i < WORDS; i++) {
		size_t len = 1 + i * 7919 % sizeof(word);

		for (size_t k = 0; k < len; k++)
			word[k] = byte_at(sent + k);
		if (send(fd, word, len, MSG_NOSIGNAL) != (ssize_t) len)
			return NULL;
		sent += len;
		usleep(i % 8 ? 0 : 100);
	}
	shutdown(fd, SHUT_WR);
	return NULL;
}

CLAIM(words_that_nobody_reads_for_a_while_wait_in_their_order)
{
	wired_t wired;
	pthread_t sender;
	long expected = 0;

	for (size_t i = 0; i < WORDS; i++)
		expected += (long) (1 + i * 7919 % 6000);
	wire_up(&wired);
	for (int i = 0; i < 2; i++) {
		int small = 16 << 10;
		int fd = i ? wired.between[1] : wired.server;

		setsockopt(fd, SOL_SOCKET, i ? SO_SNDBUF : SO_RCVBUF, &small, sizeof(small));
	}
	pthread_create(&sender, NULL, sends_words, &wired.task);
	usleep(300000);
	CHECK(heard_at(wired.server) == expected);
	pthread_join(sender, NULL);
	take_down(&wired);
	CHECK(wired.is_whole);
}

/* How many bytes can be sent without anybody reading, until half a second passes without one more */
static size_t taken_from(int fd)
{
	static char part[1 << 16];
	size_t taken = 0;

	for (int silent = 0; silent < 50; ) {
		ssize_t count = send(fd, part, sizeof(part), MSG_DONTWAIT | MSG_NOSIGNAL);

		silent = count > 0 ? 0 : silent + 1;
		taken += count > 0 ? (size_t) count : 0;
		if (count <= 0)
			usleep(10000);
		if (taken > 1 << 30)
			break;
	}
	return taken;
}

CLAIM(who_sends_without_reading_is_held_back_and_hinders_nobody)
{
	wired_t wired;
	char word[8] = "";

	wire_up(&wired);
	/* The kernel's own buffers on four sockets, and half a mebibyte of ours. */
	CHECK(taken_from(wired.task) < 64 << 20);
	CHECK(send(wired.server, "back", 4, 0) == 4);
	CHECK(recv(wired.task, word, 4, MSG_WAITALL) == 4 && !strcmp(word, "back"));
	take_down(&wired);
}

static void reset(int fd)
{
	const struct linger at_once = { .l_onoff = 1 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	close(fd);
}

CLAIM(a_side_that_breaks_breaks_the_other_too)
{
	wired_t wired;
	char word[4];

	for (int i = 0; i < 2; i++) {
		wire_up(&wired);
		CHECK(send(wired.task, "hi", 2, 0) == 2);
		CHECK(recv(wired.server, word, 2, MSG_WAITALL) == 2);
		reset(i ? wired.server : wired.task);
		/* No end that could be taken for all there was */
		CHECK(recv(i ? wired.task : wired.server, word, 1, 0) < 0 && errno == ECONNRESET);
		if (i)
			wired.server = -1;
		else
			wired.task = -1;
		take_down(&wired);
		CHECK(!wired.is_whole);
	}
}

CLAIM(a_side_that_died_meanwhile_is_noticed_when_the_other_speaks)
{
	wired_t wired;

	wire_up(&wired);
	CHECK(!shutdown(wired.task, SHUT_WR));
	reset(wired.task);
	wired.task = -1;
	CHECK(taken_from(wired.server) < 64 << 20);
	take_down(&wired);
	CHECK(!wired.is_whole);
}

CLAIM(what_is_no_connection_is_refused_at_once)
{
	int ends[2];

	CHECK(!pipe(ends));
	CHECK(!gt_pump(ends[0], -1));
	CHECK(!gt_pump(-1, -1));
	close(ends[0]);
	close(ends[1]);
}
