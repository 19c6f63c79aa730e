#include "kernel.h"

#include <dirent.h>
#include <errno.h>
#include <linux/mempolicy.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel fills in the CPUs that it has; the rest of the set stays zero. */
extern bool gt_kernel_cpus(const gt_settings_t *settings, gt_cpuset_t *cpus)
{
	memset(cpus, 0, sizeof(*cpus));
	if (settings->pretend[0])
		return gt_cpuset_parse(cpus, settings->pretend);
	return !sched_getaffinity(0, sizeof(cpus->of), cpus->of);
}

/*
 * access() asks the device cgroup too, without opening anything. Where the table has no
 * minors, the files are counted from 0, or from 128 for ROCm's render nodes: that tells how
 * many can be opened, but not which.
 */
extern void gt_kernel_access(const gt_table_t *table, const gt_settings_t *settings,
			     gt_access_t *access_)
{
	const char *prefix = settings->devices;
	int found = 0;

	memset(access_, 0, sizeof(*access_));
	access_->has_minors = true;
	if (!prefix[0])
		prefix = table->amd ? "/dev/dri/renderD" : "/dev/nvidia";
	for (int i = 0; i < table->gpus; i++) {
		int minor = table->gpu[i].minor;
		char path[GT_PATH + 16];

		if (minor == GT_UNKNOWN) {
			access_->has_minors = false;
			minor = i + (table->amd && !settings->devices[0] ? 128 : 0);
		}
		snprintf(path, sizeof(path), "%s%d", prefix, minor);
		if (!access(path, R_OK | W_OK))
			access_->open.gpu[access_->open.count++] = i;
		else if (errno != EACCES && errno != EPERM)
			continue;
		found++;
	}
	access_->is_known = found > 0;
	access_->is_restricted = access_->open.count < found;
}

static int is_address(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

/* The line `GPU UUID: GPU-8932...`; before a GPU's first use the driver writes `GPU-????...`. */
static bool read_uuid(const char *path, char uuid[GT_UUID])
{
	char line[160];
	FILE *file = fopen(path, "re");

	uuid[0] = '\0';
	if (!file)
		return false;
	while (!uuid[0] && fgets(line, sizeof(line), file))
		sscanf(line, "GPU UUID: %63s", uuid);
	fclose(file);
	return !strncmp(uuid, "GPU-", 4) && !strchr(uuid, '?');
}

/* The folder has one of the name 0000:3b:00.0 for each GPU, so that text order is PCI order. */
extern void gt_kernel_uuids(const gt_settings_t *settings, gt_uuids_t *uuids)
{
	struct dirent **found = NULL;
	int count = scandir(settings->uuids, &found, is_address, alphasort);
	char path[2 * GT_PATH + 32];
	bool is_good = count > 0 && count <= GT_GPUS;

	for (int i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s/%.255s/information", settings->uuids,
			 found[i]->d_name);
		is_good = is_good && read_uuid(path, uuids->uuid[i]);
		free(found[i]);
	}
	free(found);
	uuids->count = is_good ? count : 0;
}

extern bool gt_kernel_has_nic(const char *name)
{
	char path[GT_NAME + 32];

	if (strchr(name, '/') || name[0] == '.')
		return false;
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s", name);
	return !access(path, F_OK);
}

extern long gt_kernel_numa_memory_mb(int number)
{
	char path[80], line[160];
	long kb = -1024;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/meminfo", number);
	if (!(file = fopen(path, "re")))
		return GT_UNKNOWN;
	if (!fgets(line, sizeof(line), file) ||
	    sscanf(line, "Node %*d MemTotal: %ld kB", &kb) != 1)
		kb = -1024;
	fclose(file);
	return kb / 1024;
}

static const int policies[] = {
	[GT_MEM_PREFERRED] = MPOL_PREFERRED,
	[GT_MEM_BIND] = MPOL_BIND,
	[GT_MEM_INTERLEAVE] = MPOL_INTERLEAVE,
};

extern void gt_kernel_record(FILE *record, const gt_plan_t *plan)
{
	char cpus[GT_TEXT];

	if (plan->set_cpus) {
		gt_cpuset_print(&plan->cpus, cpus, sizeof(cpus));
		fprintf(record, "sched_setaffinity cpus=%s\n", cpus);
	}
	if (plan->mem != GT_MEM_NONE)
		fprintf(record, "set_mempolicy mode=%s nodes=%#llx\n", gt_mem_name(plan->mem),
			(unsigned long long) plan->numa_nodes);
}

extern const char *gt_kernel_apply(const gt_settings_t *settings, const gt_plan_t *plan)
{
	unsigned long nodes[2] = { (unsigned long) plan->numa_nodes,
		sizeof(unsigned long) < 8 ? (unsigned long) (plan->numa_nodes >> 16 >> 16) : 0 };
	const char *failed = NULL;
	int why = 0;

	if (settings->pretend[0])
		return NULL;
	if (plan->set_cpus && sched_setaffinity(0, sizeof(plan->cpus.of), plan->cpus.of)) {
		failed = "sched_setaffinity";
		why = errno;
	}
	/* The kernel reads one bit less than this number says. */
	if (plan->mem != GT_MEM_NONE && syscall(SYS_set_mempolicy, policies[plan->mem], nodes,
						GT_NUMA + 1)) {
		failed = "set_mempolicy";
		why = errno;
	}
	errno = why;
	return failed;
}
