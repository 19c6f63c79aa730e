/* Tests of what gputopo-carry and gputopo-wire.so are made of: `pure_test run CLAIM`, or all. */
#include <signal.h>

#include "../claims.h"

int main(int argc, char *argv[])
{
	signal(SIGPIPE, SIG_IGN); /* as gputopo-carry does */
	return run_claims(argc == 3 && !strcmp(argv[1], "run") ? argv[2] : NULL);
}
