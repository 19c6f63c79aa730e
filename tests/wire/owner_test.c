/* Whose a connection is, by the kernel's word; and any other word, which says nothing. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../claims.h"
#include "owner.h"

/* A connection over loopback: what the one that accepted knows of it */
typedef struct {
	int client, accepted;
	struct sockaddr_storage near, far;
} ends_t;

/* `family` is the listener's; the client is one of IPv4 */
static bool connected(int family, ends_t *ends)
{
	struct sockaddr_in6 six = { .sin6_family = AF_INET6 };
	struct sockaddr_in four = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	struct sockaddr *at = family == AF_INET ? (struct sockaddr *) &four : (struct sockaddr *) &six;
	socklen_t size = family == AF_INET ? sizeof(four) : sizeof(six);
	socklen_t room = sizeof(ends->near), other = sizeof(ends->far);
	int listening = socket(family, SOCK_STREAM, 0);
	bool is_there = listening >= 0 && !bind(listening, at, size) && !listen(listening, 1) &&
		!getsockname(listening, at, &size);

	if (family == AF_INET6)
		four.sin_port = six.sin6_port;
	ends->client = socket(AF_INET, SOCK_STREAM, 0);
	is_there = is_there && !connect(ends->client, (struct sockaddr *) &four, sizeof(four));
	ends->accepted = is_there ? accept(listening, (struct sockaddr *) &ends->near, &room) : -1;
	close(listening);
	return ends->accepted >= 0 &&
		!getsockname(ends->accepted, (struct sockaddr *) &ends->far, &other);
}

static void hang_up(ends_t *ends)
{
	close(ends->client);
	close(ends->accepted);
}

CLAIM(a_connection_of_our_own_is_ours_until_it_ends)
{
	ends_t ends;

	CHECK(connected(AF_INET, &ends));
	CHECK(gt_owner(&ends.near, &ends.far) == GT_OWNER_OURS);
	close(ends.client);
	CHECK(gt_owner(&ends.near, &ends.far) == GT_OWNER_NOT_OURS);
	close(ends.accepted);
	CHECK(gt_owner(&ends.near, &ends.far) == GT_OWNER_NOT_OURS);
}

CLAIM(one_that_a_listener_of_ipv6_accepted_from_ipv4_is_ours_too)
{
	ends_t ends;

	if (connected(AF_INET6, &ends)) { /* else this host has no IPv6 */
		CHECK(ends.near.ss_family == AF_INET6);
		CHECK(gt_owner(&ends.near, &ends.far) == GT_OWNER_OURS);
	}
	hang_up(&ends);
}

CLAIM(another_users_is_not_ours)
{
	ends_t ends;
	pid_t child;
	int status;

	if (geteuid())
		return; /* only root can be another user for once */
	CHECK(connected(AF_INET, &ends));
	child = fork();
	if (!child)
		_exit(seteuid(65534) || gt_owner(&ends.near, &ends.far) != GT_OWNER_NOT_OURS);
	CHECK(waitpid(child, &status, 0) == child && !status);
	hang_up(&ends);
}

CLAIM(where_no_such_connection_is_nobodys_listener_is_taken_for_it)
{
	ends_t ends;
	struct sockaddr_storage other;

	CHECK(connected(AF_INET, &ends));
	other = ends.near;
	((struct sockaddr_in *) &other)->sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
	CHECK(gt_owner(&other, &ends.far) == GT_OWNER_NOT_OURS);
	other.ss_family = AF_UNIX;
	CHECK(gt_owner(&other, &ends.far) == GT_OWNER_UNKNOWN);
	hang_up(&ends);
}

CLAIM(asking_keeps_no_descriptor_open)
{
	ends_t ends;
	int before;

	CHECK(connected(AF_INET, &ends));
	before = open_descriptors();
	for (int i = 0; i < 100; i++)
		(void) gt_owner(&ends.near, &ends.far);
	CHECK(open_descriptors() == before);
	hang_up(&ends);
}

/* An answer about 127.0.0.1 port 1 to 127.0.0.1 port 2, of this process's user */
typedef struct {
	struct nlmsghdr head;
	struct inet_diag_msg body;
} answer_t;

static answer_t answer_for(const struct sockaddr_in *near, const struct sockaddr_in *far)
{
	return (answer_t) {
		.head = { .nlmsg_len = sizeof(answer_t), .nlmsg_type = SOCK_DIAG_BY_FAMILY },
		.body = { .idiag_family = AF_INET, .idiag_state = 1, .idiag_inode = 7,
			  .idiag_uid = geteuid(),
			  .id = { .idiag_sport = near->sin_port, .idiag_dport = far->sin_port,
				  .idiag_src = { near->sin_addr.s_addr },
				  .idiag_dst = { far->sin_addr.s_addr } } },
	};
}

CLAIM(any_answer_cut_anywhere_or_of_any_bytes_is_read_within_its_bounds)
{
	struct sockaddr_storage near = { .ss_family = AF_INET }, far = near;
	struct sockaddr_in *one = (struct sockaddr_in *) &near, *other = (struct sockaddr_in *) &far;
	answer_t whole;

	one->sin_addr.s_addr = other->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	one->sin_port = 1;
	other->sin_port = 2;
	whole = answer_for(one, other);
	CHECK(gt_owner_read(&whole, sizeof(whole), &near, &far) == GT_OWNER_OURS);
	srandom(11);
	for (int i = 0; i < 100000; i++) {
		size_t size = (size_t) random() % (sizeof(whole) + 1);
		char *part = malloc(size ? size : 1); /* the sanitizer sees a byte beyond */

		memcpy(part, &whole, size);
		if (i % 2 && size)
			part[(size_t) random() % size] ^= (char) (1 + random() % 255);
		if (gt_owner_read(part, size, &near, &far) == GT_OWNER_OURS)
			CHECK(size == sizeof(whole));
		free(part);
	}
}

CLAIM(an_error_of_the_kernels_is_no_answer_but_for_no_such_connection)
{
	struct sockaddr_storage near = { .ss_family = AF_INET };
	struct {
		struct nlmsghdr head;
		struct nlmsgerr body;
	} error = { .head = { .nlmsg_type = NLMSG_ERROR } };

	error.body.error = -ENOENT;
	CHECK(gt_owner_read(&error, sizeof(error), &near, &near) == GT_OWNER_NOT_OURS);
	error.body.error = -EPERM;
	CHECK(gt_owner_read(&error, sizeof(error), &near, &near) == GT_OWNER_UNKNOWN);
}
