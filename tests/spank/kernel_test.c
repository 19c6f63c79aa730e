#include "kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "../claims.h"

/* The files of the first NUMA nodes; there are no others. NULL: an empty file */
static const char *const meminfo[] = {
	"Node 0 MemTotal:       263721768 kB\nNode 0 MemFree:        99 kB\n",
	NULL,
	"Node 2 MemFree:        99 kB\nNode 2 MemTotal:       263721768 kB\n",
};

/* Stands in for libc's. */
extern FILE *fopen(const char *path, const char *mode)
{
	int node;

	if (sscanf(path, "/sys/devices/system/node/node%d", &node) != 1)
		return fdopen(open(path, O_RDONLY | O_CLOEXEC), mode);
	if (node >= (int) (sizeof(meminfo) / sizeof(meminfo[0])))
		return NULL;
	if (!meminfo[node])
		return fdopen(open("/dev/null", O_RDONLY | O_CLOEXEC), mode);
	return fmemopen((char *) (uintptr_t) meminfo[node], strlen(meminfo[node]), mode);
}

CLAIM(a_numa_nodes_memory_is_its_own_or_not_known)
{
	CHECK(gt_kernel_numa_memory_mb(0) == 257540);
	CHECK(gt_kernel_numa_memory_mb(1) == GT_UNKNOWN);	/* an empty file */
	CHECK(gt_kernel_numa_memory_mb(2) == GT_UNKNOWN);	/* another first line */
	CHECK(gt_kernel_numa_memory_mb(3) == GT_UNKNOWN);	/* no file */
}

static int next_fd(void)
{
	int fd = dup(STDIN_FILENO);

	close(fd);
	return fd;
}

CLAIM(no_file_stays_open)
{
	int before = next_fd();

	gt_kernel_numa_memory_mb(1);
	CHECK(next_fd() == before);
}

CLAIM(a_call_that_the_kernel_refuses_is_named)
{
	gt_settings_t settings;
	gt_plan_t plan = { .set_cpus = true };
	const char *failed;

	gt_settings_defaults(&settings);
	CHECK(gt_cpuset_parse(&plan.cpus, "8191"));	/* no machine has it */
	failed = gt_kernel_apply(&settings, &plan);
	CHECK(failed && !strcmp(failed, "sched_setaffinity") && errno == EINVAL);
}
