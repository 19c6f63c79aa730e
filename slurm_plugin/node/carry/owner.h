/* Whose a connection of this host is: the kernel's answer (sock_diag) by both addresses and ports. */
#pragma once

#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

typedef enum {
	GT_OWNER_UNKNOWN, /* the kernel does not tell */
	GT_OWNER_OURS, /* this process's user's, and established */
	GT_OWNER_NOT_OURS, /* another user's, or no more */
} gt_owner_t;

enum { GT_OWNER_ANSWER = 1024 }; /* longest answer of the kernel, in bytes */

/* The end at `near` of the connection that this host accepted at `far`. Keeps nothing open. */
extern gt_owner_t gt_owner(const struct sockaddr_storage *near, const struct sockaddr_storage *far);

/* What an answer of `size` bytes says about that end */
extern gt_owner_t gt_owner_read(const void *answer, size_t size, const struct sockaddr_storage *near,
				const struct sockaddr_storage *far);
