#include "door.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* Whoever answers may first have to prove who we are to another node. */
enum { ANSWER_S = 30 };

extern bool gt_door_parse(const char *text, gt_door_t *door)
{
	size_t len = text ? strcspn(text, " ") : 0;
	const char *rest;

	if (!len || len >= sizeof(door->name))
		return false;
	memset(door, 0, sizeof(*door));
	memcpy(door->name, text, len);
	for (rest = text + len; *rest == ' '; ) {
		char *end;
		unsigned long port = strtoul(rest + 1, &end, 10);

		if (rest[1] < '0' || rest[1] > '9' || !port || port > UINT16_MAX ||
		    door->count == GT_DOOR_PORTS)
			return false;
		door->port[door->count++] = (uint16_t) port;
		rest = end;
	}
	return !*rest && door->count;
}

static int port_of(const struct sockaddr_storage *address)
{
	if (address->ss_family == AF_INET)
		return ntohs(((const struct sockaddr_in *) address)->sin_port);
	if (address->ss_family == AF_INET6)
		return ntohs(((const struct sockaddr_in6 *) address)->sin6_port);
	return -1;
}

extern bool gt_door_has(const gt_door_t *door, const struct sockaddr_storage *address)
{
	int port = port_of(address);

	for (int i = 0; i < door->count; i++) {
		if (door->port[i] == port)
			return true;
	}
	return false;
}

extern bool gt_door_text(const struct sockaddr_storage *address, char *text, size_t room)
{
	const void *host = &((const struct sockaddr_in *) address)->sin_addr;
	char name[INET6_ADDRSTRLEN];

	if (port_of(address) < 0)
		return false;
	if (address->ss_family == AF_INET6)
		host = &((const struct sockaddr_in6 *) address)->sin6_addr;
	if (!inet_ntop(address->ss_family, host, name, sizeof(name)))
		return false;
	return snprintf(text, room, "%s %d", name, port_of(address)) < (int) room;
}

/* Anybody can take a free abstract name: whose it is, the kernel says. */
static bool is_ours(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) && peer.uid == geteuid();
}

static int knock(const gt_door_t *door)
{
	const struct timeval limit = { .tv_sec = ANSWER_S };
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	size_t len = strlen(door->name);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	memcpy(address.sun_path + 1, door->name, len);
	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) ||
	    connect(fd, (struct sockaddr *) &address,
		    (socklen_t) (offsetof(struct sockaddr_un, sun_path) + 1 + len)) ||
	    !is_ours(fd)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* RET the only descriptor of a message; more than one are no answer, and are closed */
static int only_one(struct msghdr *message)
{
	int found = -1, count = 0;

	for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
		if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = CMSG_LEN(0); at + sizeof(int) <= part->cmsg_len; at += sizeof(int)) {
			if (count++)
				close(found);
			memcpy(&found, (const char *) part + at, sizeof(int));
		}
	}
	if (count > 1) {
		close(found);
		found = -1;
	}
	return found;
}

static int received(int fd)
{
	char word;
	struct iovec part = { &word, 1 };
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))]; /* which two fit into, too */
	} control;
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
				  .msg_controllen = sizeof(control) };
	ssize_t count;

	do
		count = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
	while (count < 0 && errno == EINTR);
	return count < 0 ? -1 : only_one(&message);
}

extern int gt_door_ask(const gt_door_t *door, const char *question)
{
	int fd = knock(door), given = -1;

	if (fd < 0)
		return -1;
	if (send(fd, question, strlen(question), MSG_NOSIGNAL) == (ssize_t) strlen(question))
		given = received(fd);
	close(fd);
	return given;
}
