/*
 * submit_client: saturates slurmctld with submits, without a fork and exec per job.
 *
 *   submit_client CLIENTS SECONDS TRES_PER_NODE COMMENT PARTITION
 *
 * CLIENTS processes submit held batch jobs (priority 0: they cost the scheduler nothing)
 * that ask for TRES_PER_NODE, every second one with COMMENT, for SECONDS. Prints one line:
 *   submitted=N failed=N seconds=S
 * Exit status 1 if no job was submitted; the first failure is said on stderr.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

struct tally {
	unsigned submitted;
	unsigned failed;
};

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void submit_until(double end_s, char **argv, struct tally *tally)
{
	char *environment[] = { "PATH=/usr/bin:/bin", "SLURM_GET_USER_ENV=0" };
	job_desc_msg_t job;

	slurm_init(NULL);
	slurm_init_job_desc_msg(&job);
	job.name = "saturate";
	job.partition = argv[5];
	job.script = "#!/bin/sh\ntrue\n";
	job.work_dir = "/tmp";
	job.std_out = "/dev/null";
	job.environment = environment;
	job.env_size = 2;
	job.user_id = getuid();
	job.group_id = getgid();
	job.min_nodes = 1;
	job.num_tasks = 1;
	job.time_limit = 1;
	job.priority = 0;
	job.tres_per_node = argv[3];
	while (now_s() < end_s) {
		submit_response_msg_t *response = NULL;

		job.comment = (tally->submitted % 2) ? argv[4] : NULL;
		if (slurm_submit_batch_job(&job, &response) == SLURM_SUCCESS) {
			tally->submitted++;
			slurm_free_submit_response_response_msg(response);
		} else if (!tally->failed++) {
			slurm_perror("submit_client: submit");
		}
	}
}

int main(int argc, char **argv)
{
	unsigned clients, i, submitted = 0, failed = 0;
	struct tally *tallies;
	double start_s, end_s;

	if (argc != 6 || atoi(argv[1]) < 1 || atof(argv[2]) <= 0) {
		fprintf(stderr, "usage: submit_client CLIENTS SECONDS TRES_PER_NODE COMMENT PARTITION\n");
		return 2;
	}
	clients = (unsigned)atoi(argv[1]);
	tallies = mmap(NULL, clients * sizeof(*tallies), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (tallies == MAP_FAILED) {
		perror("submit_client: mmap");
		return 2;
	}
	start_s = now_s();
	end_s = start_s + atof(argv[2]);
	for (i = 0; i < clients; i++) {
		pid_t pid = fork();

		if (pid < 0) {
			perror("submit_client: fork");
			break;
		}
		if (pid == 0) {
			submit_until(end_s, argv, &tallies[i]);
			_exit(0);
		}
	}
	while (wait(NULL) > 0)
		;
	end_s = now_s();
	for (i = 0; i < clients; i++) {
		submitted += tallies[i].submitted;
		failed += tallies[i].failed;
	}
	printf("submitted=%u failed=%u seconds=%.3f\n", submitted, failed, end_s - start_s);
	return submitted ? 0 : 1;
}
