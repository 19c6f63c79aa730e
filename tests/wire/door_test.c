/* What the preloaded library reads from its environment, and how it asks for connections. */
#include <arpa/inet.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>
#include <unistd.h>

#include "../claims.h"
#include "door.h"

CLAIM(a_door_has_a_name_and_ports)
{
	gt_door_t door;

	CHECK(gt_door_parse("gputopo-a1 50000", &door));
	CHECK_TEXT(door.name, "gputopo-a1");
	CHECK(door.count == 1 && door.port[0] == 50000);
	CHECK(gt_door_parse("x 1 65535 7", &door) && door.count == 3 && door.port[2] == 7);
}

CLAIM(any_other_text_is_no_door)
{
	static const char *const others[] = {
		NULL, "", " ", "name", "name ", " 50000", "name 0", "name 65536", "name -1", "name x",
		"name 1x", "name 1,2", "name  1", "name 1 ", "name 99999999999999999999",
	};
	char text[GT_DOOR_NAME + 20], many[GT_DOOR_PORTS * 3 + 20] = "name";
	gt_door_t door;

	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		CHECK(!gt_door_parse(others[i], &door));
	memset(text, 'n', GT_DOOR_NAME);
	strcpy(text + GT_DOOR_NAME, " 5");
	CHECK(!gt_door_parse(text, &door));
	CHECK(gt_door_parse(text + 1, &door));
	for (int i = 0; i < GT_DOOR_PORTS; i++)
		strcat(many, " 5");
	CHECK(gt_door_parse(many, &door));
	strcat(many, " 5");
	CHECK(!gt_door_parse(many, &door));
}

static struct sockaddr_storage address_of(int family, const char *host, int port)
{
	struct sockaddr_storage address = { .ss_family = (sa_family_t) family };
	struct sockaddr_in *plain = (struct sockaddr_in *) &address;
	struct sockaddr_in6 *wide = (struct sockaddr_in6 *) &address;

	if (family == AF_INET) {
		inet_pton(family, host, &plain->sin_addr);
		plain->sin_port = htons((uint16_t) port);
	} else {
		inet_pton(family, host, &wide->sin6_addr);
		wide->sin6_port = htons((uint16_t) port);
	}
	return address;
}

CLAIM(an_address_is_told_with_its_port)
{
	struct sockaddr_storage address = address_of(AF_INET, "127.0.0.1", 40000);
	char text[80], small[12];
	gt_door_t door;

	CHECK(gt_door_parse("n 7 40000", &door));
	CHECK(gt_door_has(&door, &address));
	CHECK(gt_door_text(&address, text, sizeof(text)));
	CHECK_TEXT(text, "127.0.0.1 40000");
	CHECK(!gt_door_text(&address, small, sizeof(small)));
	address = address_of(AF_INET6, "::ffff:127.0.0.1", 40001);
	CHECK(!gt_door_has(&door, &address));
	CHECK(gt_door_text(&address, text, sizeof(text)));
	CHECK_TEXT(text, "::ffff:127.0.0.1 40001");
	address.ss_family = AF_UNIX;
	CHECK(!gt_door_has(&door, &address) && !gt_door_text(&address, text, sizeof(text)));
}

/* What the process behind the door does with one question */
typedef struct {
	int listening;
	int given; /* -1: hangs up; -2: answers without a descriptor */
	bool is_twice; /* answers with two of it */
	char heard[80];
} desk_t;

static void *answers(void *given)
{
	desk_t *desk = given;
	int fd = accept(desk->listening, NULL, NULL);
	char word = 'y';
	struct iovec part = { &word, 1 };
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(2 * sizeof(int))];
	} control = { 0 };
	size_t size = (desk->is_twice ? 2 : 1) * sizeof(int);
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
				  .msg_controllen = CMSG_SPACE(size) };

	(void) !recv(fd, desk->heard, sizeof(desk->heard) - 1, 0);
	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN(size);
	for (size_t at = 0; at < size; at += sizeof(int))
		memcpy(CMSG_DATA(&control.head) + at, &desk->given, sizeof(int));
	if (desk->given == -2)
		(void) !send(fd, &word, 1, 0);
	if (desk->given >= 0)
		(void) !sendmsg(fd, &message, 0);
	close(fd);
	return NULL;
}

static int asked(desk_t *desk, gt_door_t *door)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	pthread_t thread;
	char text[60];
	int found, len;

	len = snprintf(text, sizeof(text), "gputopo-test-%d-%d", getpid(), desk->given);
	memcpy(address.sun_path + 1, text, (size_t) len);
	desk->listening = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	CHECK(!bind(desk->listening, (struct sockaddr *) &address,
		    (socklen_t) (offsetof(struct sockaddr_un, sun_path) + 1) + (socklen_t) len));
	CHECK(!listen(desk->listening, 1));
	strcat(text, " 1");
	CHECK(gt_door_parse(text, door));
	pthread_create(&thread, NULL, answers, desk);
	found = gt_door_ask(door, "A 127.0.0.1 9");
	pthread_join(thread, NULL);
	close(desk->listening);
	CHECK_TEXT(desk->heard, "A 127.0.0.1 9");
	return found;
}

CLAIM(a_question_is_answered_with_a_descriptor)
{
	gt_door_t door;
	int ends[2], found;
	char word[4] = "";

	CHECK(!pipe(ends));
	found = asked(&(desk_t) { .given = ends[0] }, &door);
	close(ends[0]);
	CHECK(found >= 0 && write(ends[1], "yes", 3) == 3 && read(found, word, 3) == 3);
	CHECK_TEXT(word, "yes");
	close(found);
	close(ends[1]);
}

CLAIM(more_than_one_descriptor_is_no_answer_and_none_is_kept)
{
	gt_door_t door;
	int before = open_descriptors();

	CHECK(asked(&(desk_t) { .given = 0, .is_twice = true }, &door) == -1);
	CHECK(open_descriptors() == before);
}

CLAIM(a_door_of_any_text_is_read_within_its_bounds)
{
	static const char letters[] = "0159 -+x\t gputopo";
	gt_door_t door;

	srandom(7);
	for (int i = 0; i < 20000; i++) {
		size_t size = (size_t) random() % 4000;
		char *text = malloc(size + 1);

		for (size_t k = 0; k < size; k++)
			text[k] = letters[(size_t) random() % (sizeof(letters) - 1)];
		text[size] = '\0';
		if (gt_door_parse(text, &door))
			CHECK(door.count > 0 && door.count <= GT_DOOR_PORTS && door.port[0]);
		free(text);
	}
}

CLAIM(where_nobody_answers_there_is_none)
{
	gt_door_t door;

	CHECK(asked(&(desk_t) { .given = -1 }, &door) == -1);
	/* nobody listens there any more */
	CHECK(gt_door_ask(&door, "L") == -1);
	CHECK(asked(&(desk_t) { .given = -2 }, &door) == -1);
}
