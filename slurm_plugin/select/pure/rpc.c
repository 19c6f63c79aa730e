#define _GNU_SOURCE
#include "rpc.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define LOG_AGAIN_US (600 * 1000000LL)
#define LATE "no answer within the deadline"
#define LOST "connection lost: %s"

extern int64_t gt_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

extern void gt_channel_init(gt_channel_t *channel)
{
	memset(channel, 0, sizeof(*channel));
	channel->fd = -1;
	channel->logged_us = -LOG_AGAIN_US;
}

extern void gt_channel_close(gt_channel_t *channel)
{
	if (channel->fd >= 0)
		close(channel->fd);
	channel->fd = -1;
	channel->proven = channel->wants_pass = false;
	channel->len = 0;
}

/* RET the result, whose reason is now in channel->wrong */
__attribute__((format(printf, 3, 4)))
static gt_result_t failed(gt_channel_t *channel, gt_result_t result,
			  const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(channel->wrong, sizeof(channel->wrong), format, arguments);
	va_end(arguments);
	return result;
}

/* A Unix socket connects at once or not at all: a full backlog is EAGAIN. */
static bool open_socket(gt_channel_t *channel, const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	if (channel->fd >= 0 && channel->owner == getpid())
		return true;
	gt_channel_close(channel);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	channel->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK |
			     SOCK_CLOEXEC, 0);
	channel->owner = getpid();
	if (channel->fd >= 0 &&
	    !connect(channel->fd, (struct sockaddr *) &address,
		     sizeof(address)))
		return true;
	channel->refused = true;
	failed(channel, GT_DOWN, "%.100s: %s", path, strerror(errno));
	gt_channel_close(channel);
	return false;
}

static bool wait_for(int fd, short events, int64_t end_us)
{
	struct pollfd ready = { .fd = fd, .events = events };

	for (;;) {
		int64_t left = end_us - gt_now_us();
		struct timespec timeout = { .tv_sec = left / 1000000,
					    .tv_nsec = left % 1000000 * 1000 };
		int rc;

		if (left <= 0)
			return false;
		rc = ppoll(&ready, 1, &timeout, NULL);
		if (rc > 0)
			return true;
		if (rc == 0 || errno != EINTR)
			return false;
	}
}

static gt_result_t send_all(gt_channel_t *channel, const gt_line_t *line,
			 int64_t end_us)
{
	size_t sent = 0;

	while (sent < line->len) {
		ssize_t n = send(channel->fd, line->text + sent,
				 line->len - sent, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n > 0)
			sent += (size_t) n;
		else if (errno == EAGAIN || errno == EWOULDBLOCK) {
			if (!wait_for(channel->fd, POLLOUT, end_us))
				return failed(channel, GT_TIMEOUT, LATE);
		} else if (errno != EINTR)
			return failed(channel, GT_DOWN, LOST, strerror(errno));
	}
	return GT_ANSWERED;
}

/* Takes the next whole line out of the buffer; *line is valid until then. */
static bool next_line(gt_channel_t *channel, size_t *used, char **line)
{
	char *end = memchr(channel->in + *used, '\n', channel->len - *used);

	if (!end)
		return false;
	*line = channel->in + *used;
	*end = '\0';
	*used = (size_t) (end + 1 - channel->in);
	return true;
}

/* RET true if the line is what the engine may say unasked */
static bool is_unasked(gt_channel_t *channel, const char *line)
{
	bool is_wish = !strcmp(line, "schedule");

	channel->wants_pass |= is_wish;
	return is_wish;
}

/* Reads until the reply with this id; answers to given-up questions are skipped. */
static gt_result_t receive(gt_channel_t *channel, uint64_t id, int64_t end_us,
			char **line)
{
	for (channel->len = 0;;) {
		size_t used = 0;
		char *behind;
		ssize_t n;

		while (next_line(channel, &used, line)) {
			uint64_t got = gt_reply_id(*line);

			if (is_unasked(channel, *line))
				continue;
			if (got == id) {
				/* what came behind it is given up, too, but for a wish */
				while (next_line(channel, &used, &behind))
					is_unasked(channel, behind);
				channel->len = 0;
				return GT_ANSWERED;
			}
			if (got && got < id)
				continue;
			return failed(channel, GT_GARBAGE,
				      "a reply without our id");
		}
		channel->len -= used;
		memmove(channel->in, channel->in + used, channel->len);
		if (channel->len >= GT_REPLY_MAX)
			return failed(channel, GT_GARBAGE,
				      "a reply over %d bytes", GT_REPLY_MAX);
		if (!wait_for(channel->fd, POLLIN, end_us))
			return failed(channel, GT_TIMEOUT, LATE);
		n = read(channel->fd, channel->in + channel->len,
			 GT_REPLY_MAX - channel->len);
		if (n > 0)
			channel->len += (size_t) n;
		else if (n == 0 || (errno != EAGAIN && errno != EINTR))
			return failed(channel, GT_DOWN, LOST, n ?
				      strerror(errno) : "closed by the engine");
	}
}

static gt_result_t exchange(gt_channel_t *channel, const gt_config_t *config,
			 const gt_line_t *line, uint64_t id, int64_t end_us,
			 char **text)
{
	bool kept = channel->fd >= 0;
	gt_result_t rc;

	if (!open_socket(channel, config->socket))
		return GT_DOWN;
	if ((rc = send_all(channel, line, end_us)) == GT_ANSWERED)
		rc = receive(channel, id, end_us, text);
	if (rc != GT_DOWN || !kept)
		return rc;
	/* an engine restarted since: the kept connection is stale, ask anew */
	gt_channel_close(channel);
	return exchange(channel, config, line, id, end_us, text);
}

extern gt_result_t gt_channel_ask(gt_channel_t *channel, const gt_config_t *config,
			       const gt_line_t *line, uint64_t id,
			       int64_t limit_us, gt_reply_t *reply)
{
	int64_t now_us = gt_now_us(), end_us;
	const char *wrong;
	char *text = NULL;
	gt_result_t rc;

	if (now_us < channel->breaker_until_us)
		return GT_BREAKER;
	if (limit_us > config->deadline_ms * 1000LL)
		limit_us = config->deadline_ms * 1000LL;
	end_us = now_us + limit_us;
	channel->refused = false;
	rc = exchange(channel, config, line, id, end_us, &text);
	channel->waited_us += gt_now_us() - now_us;
	if (rc == GT_ANSWERED && (wrong = gt_reply_parse(text, reply)))
		rc = failed(channel, GT_GARBAGE, "a reply with %s", wrong);
	if (rc == GT_ANSWERED) {
		channel->failing = false;
		channel->proven = true;
		channel->logged_us = -LOG_AGAIN_US;
		return rc;
	}
	/*
	 * One late answer of an engine that has answered is a hiccup of a busy
	 * host; the next question, on a new connection, decides.
	 */
	if (rc != GT_TIMEOUT || !channel->proven)
		channel->breaker_until_us = gt_now_us() +
					    config->breaker_s * 1000000LL;
	gt_channel_close(channel);
	channel->failing = true;
	return rc;
}

extern bool gt_channel_hear(gt_channel_t *channel, int64_t limit_us)
{
	size_t used = 0;
	char *line;
	ssize_t n;

	/* ppoll() leaves out a descriptor of -1 */
	if (!wait_for(channel->fd, POLLIN, gt_now_us() + limit_us))
		return true;
	n = read(channel->fd, channel->in + channel->len,
		 GT_REPLY_MAX - channel->len);
	if (n <= 0)
		return n && (errno == EAGAIN || errno == EINTR);
	channel->len += (size_t) n;
	while (next_line(channel, &used, &line))
		if (!is_unasked(channel, line))
			return false;
	channel->len -= used;
	memmove(channel->in, channel->in + used, channel->len);
	return channel->len < GT_REPLY_MAX;
}

extern void gt_channel_tell(gt_channel_t *channel, const gt_config_t *config,
			    const gt_line_t *line)
{
	for (int attempt = 0; attempt < 2; attempt++) {
		ssize_t n;

		if (gt_now_us() < channel->breaker_until_us ||
		    !open_socket(channel, config->socket))
			break;
		n = send(channel->fd, line->text, line->len,
			 MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n == (ssize_t) line->len)
			return;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			break;
		/* half a line, or a stale connection: start a fresh one */
		gt_channel_close(channel);
		if (n > 0)
			break;
	}
	channel->notices_dropped++;
}

extern bool gt_channel_should_log(gt_channel_t *channel)
{
	int64_t now_us = gt_now_us();

	if (now_us - channel->logged_us < LOG_AGAIN_US)
		return false;
	channel->logged_us = now_us;
	return true;
}
