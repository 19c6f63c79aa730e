#include "owner.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { ESTABLISHED = 1 };

/* An address in the form in which sock_diag takes it and tells it */
typedef struct {
	uint8_t family;
	uint16_t port; /* in the network's byte order */
	uint32_t host[4]; /* IPv4: the first alone */
} place_t;

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

/* An IPv4 address in IPv6's form (::ffff:127.0.0.1) is itself: the other end may have it plain. */
static place_t plain(uint8_t family, uint16_t port, const void *host)
{
	place_t place = { .family = family, .port = port };

	if (family == AF_INET6 && !memcmp(host, mapped, sizeof(mapped))) {
		place.family = AF_INET;
		host = (const uint8_t *) host + sizeof(mapped);
	}
	memcpy(place.host, host, place.family == AF_INET ? 4 : 16);
	return place;
}

static bool place_of(const struct sockaddr_storage *address, place_t *place)
{
	const struct sockaddr_in *four = (const struct sockaddr_in *) address;
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *) address;

	if (address->ss_family == AF_INET)
		*place = plain(AF_INET, four->sin_port, &four->sin_addr);
	else if (address->ss_family == AF_INET6)
		*place = plain(AF_INET6, six->sin6_port, &six->sin6_addr);
	else
		return false;
	return true;
}

static bool is_same(const place_t *one, const place_t *other)
{
	return one->family == other->family && one->port == other->port &&
		!memcmp(one->host, other->host, sizeof(one->host));
}

extern gt_owner_t gt_owner_read(const void *answer, size_t size, const struct sockaddr_storage *near,
				const struct sockaddr_storage *far)
{
	const uint8_t *body = (const uint8_t *) answer + NLMSG_HDRLEN;
	struct nlmsghdr head;
	struct nlmsgerr error;
	struct inet_diag_msg found;
	place_t asked[2], told[2];

	if (size < NLMSG_HDRLEN || !place_of(near, &asked[0]) || !place_of(far, &asked[1]))
		return GT_OWNER_UNKNOWN;
	memcpy(&head, answer, sizeof(head));
	size -= NLMSG_HDRLEN;
	if (head.nlmsg_type == NLMSG_ERROR && size >= sizeof(error.error)) {
		memcpy(&error.error, body, sizeof(error.error));
		return error.error == -ENOENT ? GT_OWNER_NOT_OURS : GT_OWNER_UNKNOWN;
	}
	if (head.nlmsg_type != SOCK_DIAG_BY_FAMILY || size < sizeof(found))
		return GT_OWNER_UNKNOWN;
	memcpy(&found, body, sizeof(found));
	if (found.idiag_family != AF_INET && found.idiag_family != AF_INET6)
		return GT_OWNER_UNKNOWN;
	/* Where there is no such connection the kernel tells of whoever listens there. */
	told[0] = plain(found.idiag_family, found.id.idiag_sport, found.id.idiag_src);
	told[1] = plain(found.idiag_family, found.id.idiag_dport, found.id.idiag_dst);
	return is_same(&asked[0], &told[0]) && is_same(&asked[1], &told[1]) &&
		found.idiag_state == ESTABLISHED && found.idiag_inode &&
		found.idiag_uid == geteuid() ? GT_OWNER_OURS : GT_OWNER_NOT_OURS;
}

static ssize_t ask(const place_t *near, const place_t *far, void *answer)
{
	const struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	struct sockaddr_nl sender = { 0 };
	socklen_t room = sizeof(sender);
	struct {
		struct nlmsghdr head;
		struct inet_diag_req_v2 body;
	} request = {
		.head = { .nlmsg_len = sizeof(request), .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			  .nlmsg_flags = NLM_F_REQUEST },
		.body = { .sdiag_family = near->family, .sdiag_protocol = IPPROTO_TCP,
			  .idiag_states = UINT32_MAX,
			  .id = { .idiag_sport = near->port, .idiag_dport = far->port,
				  .idiag_cookie = { INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE } } },
	};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	ssize_t size = -1;

	if (fd < 0)
		return -1;
	memcpy(request.body.id.idiag_src, near->host, sizeof(near->host));
	memcpy(request.body.id.idiag_dst, far->host, sizeof(far->host));
	/* The kernel has answered when sendto returns: nothing is waited for. */
	if (sendto(fd, &request, sizeof(request), 0, (const struct sockaddr *) &kernel,
		   sizeof(kernel)) == (ssize_t) sizeof(request))
		size = recvfrom(fd, answer, GT_OWNER_ANSWER, MSG_DONTWAIT,
				(struct sockaddr *) &sender, &room);
	close(fd);
	return sender.nl_pid ? -1 : size;
}

extern gt_owner_t gt_owner(const struct sockaddr_storage *near, const struct sockaddr_storage *far)
{
	uint8_t answer[GT_OWNER_ANSWER];
	place_t from, to;
	ssize_t size;

	if (!place_of(near, &from) || !place_of(far, &to) || from.family != to.family)
		return GT_OWNER_UNKNOWN;
	size = ask(&from, &to, answer);
	return size < 0 ? GT_OWNER_UNKNOWN : gt_owner_read(answer, (size_t) size, near, far);
}
