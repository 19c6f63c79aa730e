#include "pump.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	/* What one direction holds until its receiver reads: enough to be sent in few pieces */
	ROOM = 512 << 10,
	/* Less than this, and there was no more to be had. */
	LITTLE = 32 << 10,
	/* So little is copied more quickly than its page is handed on. */
	WORDS = 4 << 10
};

/* One direction. The bytes wait in a pipe: they never are in this process's memory. */
typedef struct {
	int from, to;
	int in, out; /* the pipe's ends */
	size_t held;
	bool is_talk; /* what came last was few words, and the next may be */
	bool is_dry; /* the sender had no more, until poll says otherwise */
	bool is_full; /* the pipe takes no more, until some of it is sent */
	bool is_stuck; /* the receiver takes no more, until poll says otherwise */
	bool has_ended; /* the sender says no more */
	bool is_over; /* and the receiver was told so */
} flow_t;

typedef enum { MOVED, STILL, BROKEN } moved_t;

static bool open_flow(flow_t *flow, int from, int to)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		return false;
	/* room for small pieces, too; without it the kernel's 64 KiB: slower, and right */
	(void) fcntl(ends[1], F_SETPIPE_SZ, 2 * ROOM);
	*flow = (flow_t) {
		.from = from, .to = to, .in = ends[1], .out = ends[0], .is_talk = true
	};
	return true;
}

/* A call's few words, past the pipe. What the receiver does not take waits in it, which is empty. */
static moved_t hand_on(flow_t *flow)
{
	char words[WORDS];
	ssize_t count = recv(flow->from, words, sizeof(words), MSG_DONTWAIT), sent;

	if (count < 0) {
		flow->is_dry = true;
		return errno == EAGAIN || errno == EINTR ? STILL : BROKEN;
	}
	flow->has_ended = !count;
	flow->is_dry = flow->is_talk = count < WORDS;
	sent = count ? send(flow->to, words, (size_t) count, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
	if (sent < 0 && errno != EAGAIN && errno != EINTR)
		return BROKEN;
	sent = sent < 0 ? 0 : sent;
	if (sent == count)
		return MOVED;
	if (write(flow->in, words + sent, (size_t) (count - sent)) != count - sent)
		return BROKEN;
	flow->held = (size_t) (count - sent);
	flow->is_stuck = true;
	return MOVED;
}

static moved_t fill(flow_t *flow)
{
	ssize_t count;

	if (flow->has_ended || flow->is_dry || flow->is_full || flow->held >= ROOM)
		return STILL;
	if (flow->is_talk && !flow->held)
		return hand_on(flow);
	count = splice(flow->from, NULL, flow->in, NULL, ROOM - flow->held,
		       SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	if (count < 0 && errno != EAGAIN && errno != EINTR)
		return BROKEN;
	if (count < 0) {
		/* Nothing came, or many small pieces fill the pipe. */
		flow->is_full = flow->held > 0;
		flow->is_dry = !flow->is_full;
		return STILL;
	}
	flow->has_ended = !count;
	flow->is_dry = count < LITTLE;
	flow->is_talk = count < WORDS;
	flow->held += (size_t) count;
	return MOVED;
}

static moved_t drain(flow_t *flow)
{
	ssize_t count;

	if (flow->is_over || flow->is_stuck || (!flow->held && !flow->has_ended))
		return STILL;
	if (!flow->held) {
		flow->is_over = true;
		return shutdown(flow->to, SHUT_WR) && errno != ENOTCONN ? BROKEN : MOVED;
	}
	count = splice(flow->out, NULL, flow->to, NULL, flow->held,
		       SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	if (count < 0) {
		flow->is_stuck = errno == EAGAIN;
		return errno == EAGAIN || errno == EINTR ? STILL : BROKEN;
	}
	flow->held -= (size_t) count;
	flow->is_full = false;
	return MOVED;
}

/* Waits until one of the sockets can go on. */
static void await(flow_t flows[2])
{
	struct pollfd sockets[2] = { { .fd = flows[0].from }, { .fd = flows[1].from } };

	for (int i = 0; i < 2; i++) {
		if (!flows[i].has_ended && !flows[i].is_full && flows[i].held < ROOM)
			sockets[i].events |= POLLIN;
		if (flows[i].held)
			sockets[1 - i].events |= POLLOUT;
	}
	/* A socket that nothing is awaited of would wake us by POLLHUP again and again. */
	for (int i = 0; i < 2; i++) {
		if (!sockets[i].events)
			sockets[i].fd = -1;
	}
	if (poll(sockets, 2, -1) < 0)
		return;
	for (int i = 0; i < 2; i++) {
		if (sockets[i].revents & ~POLLOUT)
			flows[i].is_dry = false;
		if (sockets[i].revents & ~POLLIN)
			flows[1 - i].is_stuck = false;
	}
}

/* Fills and sends in turns: what waits for its receiver is not added to in small pieces. */
static bool carry(flow_t flows[2])
{
	while (!flows[0].is_over || !flows[1].is_over) {
		bool has_moved = false;

		for (int i = 0; i < 2; i++) {
			moved_t filled = flows[i].is_stuck ? STILL : fill(&flows[i]);
			moved_t drained = filled == BROKEN ? BROKEN : drain(&flows[i]);

			if (drained == BROKEN)
				return false;
			has_moved = has_moved || drained == MOVED || filled == MOVED;
		}
		if (!has_moved)
			await(flows);
	}
	return true;
}

static bool set_up(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && !fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

extern bool gt_pump(int near, int far)
{
	const struct linger at_once = { .l_onoff = 1 };
	flow_t flows[2];
	bool is_whole = false;

	if (set_up(near) && set_up(far) && open_flow(&flows[0], near, far)) {
		if (open_flow(&flows[1], far, near)) {
			is_whole = carry(flows);
			close(flows[1].in);
			close(flows[1].out);
		}
		close(flows[0].in);
		close(flows[0].out);
	}
	/* A side that goes on must not take what it got for all there was. */
	for (int i = 0; !is_whole && i < 2; i++)
		(void) setsockopt(i ? far : near, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	return is_whole;
}
