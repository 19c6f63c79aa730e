#include "pump.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

/* What one direction may hold while its receiver does not read; the kernel may grant less. */
enum { ROOM = 1 << 20 };

/* One direction. The bytes wait in a pipe: they never are in this process's memory. */
typedef struct {
	int from, to;
	int in, out; /* the pipe's ends */
	size_t held;
	bool is_full; /* the pipe takes no more for now */
	bool has_ended; /* the sender says no more */
	bool is_over; /* and the receiver was told so */
} flow_t;

typedef enum { MOVED, STUCK, BROKEN } moved_t;

static bool open_flow(flow_t *flow, int from, int to)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		return false;
	/* without it the kernel's 64 KiB: slower, and right */
	(void) fcntl(ends[1], F_SETPIPE_SZ, ROOM);
	*flow = (flow_t) { .from = from, .to = to, .in = ends[1], .out = ends[0] };
	return true;
}

static moved_t fill(flow_t *flow)
{
	ssize_t count;

	if (flow->has_ended || flow->is_full)
		return STUCK;
	count = splice(flow->from, NULL, flow->in, NULL, ROOM, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	if (count < 0 && errno != EAGAIN && errno != EINTR)
		return BROKEN;
	if (count < 0) {
		/* Either nothing came or the pipe is full: the second only if it holds something. */
		flow->is_full = flow->held > 0;
		return STUCK;
	}
	flow->has_ended = !count;
	flow->held += (size_t) count;
	return MOVED;
}

static moved_t drain(flow_t *flow)
{
	ssize_t count;

	if (flow->is_over)
		return STUCK;
	if (!flow->held) {
		if (!flow->has_ended)
			return STUCK;
		flow->is_over = true;
		return shutdown(flow->to, SHUT_WR) && errno != ENOTCONN ? BROKEN : MOVED;
	}
	count = splice(flow->out, NULL, flow->to, NULL, flow->held,
		       SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	if (count < 0)
		return errno == EAGAIN || errno == EINTR ? STUCK : BROKEN;
	flow->held -= (size_t) count;
	flow->is_full = false;
	return MOVED;
}

/* Waits until one of the sockets can go on. */
static void await(const flow_t flows[2])
{
	struct pollfd sockets[2] = { { .fd = flows[0].from }, { .fd = flows[1].from } };

	for (int i = 0; i < 2; i++) {
		if (!flows[i].has_ended && !flows[i].is_full)
			sockets[i].events |= POLLIN;
		if (flows[i].held)
			sockets[1 - i].events |= POLLOUT;
	}
	/* A socket that nothing is awaited of would wake us by POLLHUP again and again. */
	for (int i = 0; i < 2; i++) {
		if (!sockets[i].events)
			sockets[i].fd = -1;
	}
	(void) poll(sockets, 2, -1);
}

static bool carry(flow_t flows[2])
{
	while (!flows[0].is_over || !flows[1].is_over) {
		bool has_moved = false;

		for (int i = 0; i < 2; i++) {
			moved_t filled = fill(&flows[i]), drained = drain(&flows[i]);

			if (filled == BROKEN || drained == BROKEN)
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
