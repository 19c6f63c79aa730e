/*
 * update_node: how long slurmctld takes for the update of a node, again and again.
 *
 *   update_node SECONDS NODE
 *
 * Sends what `scontrol update nodename=NODE comment=bench` sends, without a fork and exec for each,
 * with 20 ms between an answer and the next one. Prints the milliseconds of each, one per line.
 * Exit status 1 where one is refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	struct timespec between = { .tv_nsec = 20000000 };
	double end_s, start_s;

	if (argc != 3 || atof(argv[1]) <= 0) {
		fprintf(stderr, "usage: update_node SECONDS NODE\n");
		return 2;
	}
	slurm_init(NULL);
	end_s = now_s() + atof(argv[1]);
	while ((start_s = now_s()) < end_s) {
		update_node_msg_t update;

		slurm_init_update_node_msg(&update);
		update.node_names = argv[2];
		update.comment = "bench";
		if (slurm_update_node(&update) != SLURM_SUCCESS) {
			slurm_perror("update_node");
			return 1;
		}
		printf("%.3f\n", 1e3 * (now_s() - start_s));
		nanosleep(&between, NULL);
	}
	return 0;
}
