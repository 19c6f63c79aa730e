/*
 * gputopo-carry NEAR FAR: carries bytes between two connections, given as numbers of descriptors.
 *
 * gputopo-node starts one for each connection, once both ends have proven who they are. It ends
 * with the connection, or with the process that started it.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pump.h"

/* RET the descriptor of a socket that this word names; -1 for anything else */
static int socket_in(const char *word)
{
	char *end;
	long fd = strtol(word, &end, 10);
	struct stat what;

	if (end == word || *end || fd < 0 || fd > 1 << 20)
		return -1;
	return !fstat((int) fd, &what) && S_ISSOCK(what.st_mode) ? (int) fd : -1;
}

int main(int argc, char *argv[])
{
	int near, far;

	if (argc != 3 || (near = socket_in(argv[1])) < 0 || (far = socket_in(argv[2])) < 0) {
		fprintf(stderr, "gputopo-carry: expected the descriptors of two connections;"
				" gputopo-node starts this program\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	return gt_pump(near, far) ? 0 : 1;
}
