/*
 * gputopo-wire.so, to be preloaded: the C library's accept, listen and connect for the ports of a
 * door, and as they are for all others.
 *
 *   GPUTOPO_DOOR  in a middleware's server: what comes to these ports is a knock by the donor's end,
 *                 in whose place the server gets the connection from the network, which is proven.
 *                 Anybody else who connects there is hung up on.
 *   GPUTOPO_WIRE  in a job's task: in place of a connection to one of these ports of loopback it
 *                 gets one to the donor's server itself, proven by the job's end of the relay.
 *
 * Either way no process of ours carries a byte. Where nobody answers, nobody is let in.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "door.h"
#include "owner.h"

/* A flood must not fill the queue of what is not accepted yet; the kernel's limit (somaxconn) holds. */
enum { QUESTION = 80, WAITING = 1024 };
/* A server that does not wait gets its turn after so many strangers in a row. */
enum { IN_A_ROW = 1024 };

static gt_door_t door, wire;
static bool has_door, has_wire;
static int (*real_accept4)(int, struct sockaddr *, socklen_t *, int);
static int (*real_listen)(int, int);
static int (*real_connect)(int, const struct sockaddr *, socklen_t);

__attribute__((constructor)) static void set_up(void)
{
	*(void **) &real_accept4 = dlsym(RTLD_NEXT, "accept4");
	*(void **) &real_listen = dlsym(RTLD_NEXT, "listen");
	*(void **) &real_connect = dlsym(RTLD_NEXT, "connect");
	has_door = gt_door_parse(getenv("GPUTOPO_DOOR"), &door);
	has_wire = gt_door_parse(getenv("GPUTOPO_WIRE"), &wire);
}

/* Other libraries' constructors may come before ours. */
static void be_ready(void)
{
	if (!real_connect)
		set_up();
}

static bool is_at_door(int fd)
{
	struct sockaddr_storage own;
	socklen_t size = sizeof(own);

	return has_door && !getsockname(fd, (struct sockaddr *) &own, &size) &&
		gt_door_has(&door, &own);
}

/* The server's options for what it accepts are its listening socket's, which the kernel hands on. */
static void adopt(int fd, int flags)
{
	int state = fcntl(fd, F_GETFL);

	state = flags & SOCK_NONBLOCK ? state | O_NONBLOCK : state & ~O_NONBLOCK;
	(void) fcntl(fd, F_SETFL, state);
	(void) fcntl(fd, F_SETFD, flags & SOCK_CLOEXEC ? FD_CLOEXEC : 0);
}

/* RET the connection from the network that this knock stands for; -1 where it stands for none */
static int behind(int knock, const struct sockaddr_storage *knocking)
{
	char question[QUESTION] = "A ";
	struct sockaddr_storage own;
	socklen_t size = sizeof(own);

	/* The kernel answers at once, and the door only when it has its turn. */
	if (getsockname(knock, (struct sockaddr *) &own, &size) ||
	    gt_owner(knocking, &own) == GT_OWNER_NOT_OURS ||
	    !gt_door_text(knocking, question + 2, sizeof(question) - 2))
		return -1;
	return gt_door_ask(&door, question);
}

static int let_in(int fd, struct sockaddr *address, socklen_t *size, int flags)
{
	const int before = errno;

	for (int nth = 1;; nth++) {
		struct sockaddr_storage from;
		socklen_t room = sizeof(from);
		int knock = real_accept4(fd, (struct sockaddr *) &from, &room, SOCK_CLOEXEC);
		int proven;

		if (knock < 0)
			return -1;
		proven = behind(knock, &from);
		close(knock);
		if (proven >= 0) {
			adopt(proven, flags);
			/* Who has gone meanwhile has no address; the server will read its end. */
			if (address && size && getpeername(proven, address, size))
				*size = 0;
			errno = before;
			return proven;
		}
		if (nth >= IN_A_ROW && fcntl(fd, F_GETFL) & O_NONBLOCK) {
			errno = EAGAIN;
			return -1;
		}
	}
}

extern int accept4(int fd, struct sockaddr *address, socklen_t *size, int flags)
{
	be_ready();
	return is_at_door(fd) ? let_in(fd, address, size, flags) :
		real_accept4(fd, address, size, flags);
}

extern int accept(int fd, struct sockaddr *address, socklen_t *size)
{
	return accept4(fd, address, size, 0);
}

/* Says that this server takes what the door hands it, before anybody can connect. */
extern int listen(int fd, int backlog)
{
	const int before = errno;

	be_ready();
	if (is_at_door(fd)) {
		(void) gt_door_ask(&door, "L");
		backlog = backlog < WAITING ? WAITING : backlog;
	}
	errno = before;
	return real_listen(fd, backlog);
}

static bool is_wired(int fd, const struct sockaddr *address, socklen_t size)
{
	struct sockaddr_storage to = { 0 };
	const struct sockaddr_in *plain = (const struct sockaddr_in *) &to;
	socklen_t room = sizeof(int);
	int type;

	if (!has_wire || !address || size < sizeof(*plain) || size > sizeof(to))
		return false;
	memcpy(&to, address, size);
	return !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &room) && type == SOCK_STREAM &&
		to.ss_family == AF_INET && plain->sin_addr.s_addr == htonl(INADDR_LOOPBACK) &&
		gt_door_has(&wire, &to);
}

/* Puts the donor's connection in the place of a socket that is not connected yet. */
static int replace(int fd, const struct sockaddr *address)
{
	int port = ntohs(((const struct sockaddr_in *) address)->sin_port);
	int flags = fcntl(fd, F_GETFD), state = fcntl(fd, F_GETFL), proven;
	char question[QUESTION];

	snprintf(question, sizeof(question), "C %d", port);
	proven = gt_door_ask(&wire, question);
	if (proven < 0) {
		errno = ECONNREFUSED;
		return -1;
	}
	adopt(proven, state & O_NONBLOCK ? SOCK_NONBLOCK : 0);
	state = dup3(proven, fd, flags & FD_CLOEXEC ? O_CLOEXEC : 0);
	close(proven);
	return state < 0 ? -1 : 0;
}

extern int connect(int fd, const struct sockaddr *address, socklen_t size)
{
	be_ready();
	return is_wired(fd, address, size) ? replace(fd, address) : real_connect(fd, address, size);
}
