#include "pump.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

/* What one direction holds until its receiver reads: with less the ends are woken more often. By way
 * of a pipe (splice) bytes are handed on page by page, which takes longer than to copy them. */
enum { ROOM = 512 << 10 };

/* One direction. */
typedef struct {
	int from, to;
	char *room;
	size_t start, held; /* the bytes that wait */
	bool is_dry; /* the sender had no more, until poll says otherwise */
	bool is_stuck; /* the receiver takes no more, until poll says otherwise */
	bool has_ended; /* the sender says no more */
	bool is_over; /* and the receiver was told so */
} flow_t;

typedef enum { MOVED, STILL, BROKEN } moved_t;

static size_t left(const flow_t *flow)
{
	return ROOM - flow->start - flow->held;
}

static moved_t fill(flow_t *flow)
{
	ssize_t count;

	if (flow->has_ended || flow->is_dry || !left(flow))
		return STILL;
	count = recv(flow->from, flow->room + flow->start + flow->held, left(flow), MSG_DONTWAIT);
	if (count < 0) {
		flow->is_dry = errno == EAGAIN;
		return errno == EAGAIN || errno == EINTR ? STILL : BROKEN;
	}
	flow->has_ended = !count;
	/* Less than there was room for: there was no more to be had. */
	flow->is_dry = (size_t) count < left(flow);
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
	count = send(flow->to, flow->room + flow->start, flow->held, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (count < 0) {
		flow->is_stuck = errno == EAGAIN;
		return errno == EAGAIN || errno == EINTR ? STILL : BROKEN;
	}
	flow->held -= (size_t) count;
	flow->start = flow->held ? flow->start + (size_t) count : 0;
	return MOVED;
}

/* Waits until one of the sockets can go on. */
static void await(flow_t flows[2])
{
	struct pollfd sockets[2] = { { .fd = flows[0].from }, { .fd = flows[1].from } };

	for (int i = 0; i < 2; i++) {
		if (!flows[i].has_ended && left(&flows[i]))
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

extern bool gt_pump(int near, int far)
{
	const struct linger at_once = { .l_onoff = 1 };
	char *room = malloc(2 * ROOM);
	flow_t flows[2] = {
		{ .from = near, .to = far, .room = room },
		{ .from = far, .to = near, .room = room ? room + ROOM : NULL }
	};
	bool is_whole = room && carry(flows);

	free(room);
	/* A side that goes on must not take what it got for all there was. */
	for (int i = 0; !is_whole && i < 2; i++)
		(void) setsockopt(i ? far : near, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	return is_whole;
}
