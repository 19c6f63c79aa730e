/* Asks a process of the same user, over a Unix socket, for connections that it has vetted. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum { GT_DOOR_PORTS = 512, GT_DOOR_NAME = 100 };

/* The socket's name, without the byte in front that makes it an abstract one; whose ports it is */
typedef struct {
	char name[GT_DOOR_NAME];
	int count;
	uint16_t port[GT_DOOR_PORTS];
} gt_door_t;

/* "NAME PORT PORT..." RET false for any other text, NULL included: then there is no door. */
extern bool gt_door_parse(const char *text, gt_door_t *door);

/* Is this an address of IPv4 or IPv6 with one of the door's ports? */
extern bool gt_door_has(const gt_door_t *door, const struct sockaddr_storage *address);

/* An address as text: "127.0.0.1 40000". RET false for one that is neither IPv4 nor IPv6 */
extern bool gt_door_text(const struct sockaddr_storage *address, char *text, size_t room);

/* One question. RET the descriptor that came as the answer, to be closed by the caller; -1 where
 * none did, or where another user answers */
extern int gt_door_ask(const gt_door_t *door, const char *question);
