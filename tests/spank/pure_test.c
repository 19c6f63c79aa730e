/*
 * Tests of the SPANK plugin's part without Slurm.
 *   pure_test run CLAIM             one claim
 *   pure_test plan TABLE [key=value ...]   for each line of stdin the plan of a task
 *   pure_test devices DIR TABLE     which device files of DIR can be opened
 *   pure_test uuids DIR             the UUIDs of the GPUs in DIR, by PCI address
 *   pure_test hints                 which lines of stdin a hint may be
 *   pure_test fuzz SEED ROUNDS TABLE       mutated tables, hints, arguments and tasks
 * A line of stdin: words key=value, see read_task.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "../claims.h"
#include "kernel.h"
#include "plan.h"

static gt_settings_t settings;
static char wrong[GT_NOTE];

/* ---------------------------------------------------------------- plans */

/* No machine has a NIC "absent...". NUMA nodes that the table does not know have 1000 MB. */
static bool has_nic(const char *name)
{
	return strncmp(name, "absent", 6);
}

static long numa_memory_mb(int number)
{
	return number < GT_NUMA ? 1000 : GT_UNKNOWN;
}

/* The node's UUIDs by comma, each cut where it would be too long */
static void read_uuids(gt_task_t *task, const char *value)
{
	static gt_uuids_t uuids;

	memset(&uuids, 0, sizeof(uuids));
	while (*value && uuids.count < GT_GPUS) {
		size_t len = strcspn(value, ",");

		snprintf(uuids.uuid[uuids.count++], GT_UUID, "%.*s", (int) len, value);
		value += len + (value[len] == ',');
	}
	task->uuids = &uuids;
}

static void read_word(gt_task_t *task, const char *key, const char *value)
{
	if (!strcmp(key, "visible"))
		task->visible = value;
	else if (!strcmp(key, "step"))
		task->step_gpus = value;
	else if (!strcmp(key, "tres"))
		task->tres_bind = value;
	else if (!strcmp(key, "uuids"))
		read_uuids(task, value);
	else if (!strcmp(key, "tasks"))
		task->tasks = atoi(value);
	else if (!strcmp(key, "local"))
		task->local_id = atoi(value);
	else if (!strcmp(key, "cpubind"))
		task->is_cpu_bound = true;
	else if (!strcmp(key, "membind"))
		task->is_mem_bound = true;
	else if (!strcmp(key, "cpus"))
		gt_cpuset_parse(&task->cpus, value);
	else if (!strcmp(key, "percpu"))
		task->cpus_per_task = atoi(value);
	else if (!strcmp(key, "memory"))
		task->memory_mb = strtoul(value, NULL, 10);
	else if (!strcmp(key, "open")) {
		task->access.is_known = task->access.has_minors = true;
		task->access.is_restricted = true;
		gt_list_parse(&task->access.open, value);
	}
}

static void read_task(gt_task_t *task, char *line)
{
	char *rest = NULL;

	memset(task, 0, sizeof(*task));
	task->visible = task->step_gpus = task->tres_bind = "";
	task->tasks = 1;
	task->has_nic = has_nic;
	task->numa_memory_mb = numa_memory_mb;
	for (char *word = strtok_r(line, " \n", &rest); word;
	     word = strtok_r(NULL, " \n", &rest)) {
		char *equals = strchr(word, '=');

		if (!equals)
			continue;
		*equals = '\0';
		read_word(task, word, equals + 1);
	}
}

static void print_plan(const gt_table_t *table, char *line)
{
	gt_plan_t plan;
	gt_task_t task;
	char note[GT_NOTE], cpus[GT_TEXT] = "-";

	read_task(&task, line);
	if (!gt_plan(table, &settings, &task, &plan, note)) {
		printf("left: %s\n", note);
		return;
	}
	if (plan.set_cpus)
		gt_cpuset_print(&plan.cpus, cpus, sizeof(cpus));
	printf("visible=%s cpus=%s mem=%s nodes=%" PRIx64 " nics=%s\n", plan.visible, cpus,
	       gt_mem_name(plan.mem), plan.numa_nodes, plan.nics);
}

static int plans(const char *path, int argc, char *argv[])
{
	static char line[1 << 16];
	gt_table_t table;

	if (!gt_settings_parse(&settings, argc, argv, wrong) ||
	    !gt_table_load(&table, path, wrong)) {
		printf("refused: %s\n", wrong);
		return 0;
	}
	while (fgets(line, sizeof(line), stdin))
		print_plan(&table, line);
	gt_table_free(&table);
	return 0;
}

static int devices(const char *prefix, const char *path)
{
	gt_access_t found;
	gt_table_t table;

	gt_settings_defaults(&settings);
	snprintf(settings.devices, sizeof(settings.devices), "%s", prefix);
	if (!gt_table_load(&table, path, wrong))
		return 1;
	gt_kernel_access(&table, &settings, &found);
	printf("known=%d restricted=%d minors=%d open=", found.is_known, found.is_restricted,
	       found.has_minors);
	for (int i = 0; i < found.open.count; i++)
		printf("%s%d", i ? "," : "", found.open.gpu[i]);
	printf("\n");
	gt_table_free(&table);
	return 0;
}

static int uuids_of(const char *folder)
{
	gt_uuids_t found;

	gt_settings_defaults(&settings);
	snprintf(settings.uuids, sizeof(settings.uuids), "%s", folder);
	gt_kernel_uuids(&settings, &found);
	for (int i = 0; i < found.count; i++)
		printf("%s\n", found.uuid[i]);
	return 0;
}

/* ---------------------------------------------------------------- fuzz */

static uint64_t state;

static uint32_t next_random(void)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t) (state >> 33);
}

static void damage(char *text, size_t len)
{
	static const char likely[] = "0123456789,-= \nabcdefgpu";

	for (uint32_t i = 0, n = next_random() % 4; len && i < n; i++)
		text[next_random() % len] = next_random() % 3 ?
			likely[next_random() % (sizeof(likely) - 1)] : (char) next_random();
}

/* Makes the last line fit again, so that the damage is not found at once. */
static size_t seal(char *text, size_t len, size_t room)
{
	size_t body = len;
	unsigned lines = 0;

	while (body > 1 && text[body - 2] != '\n')
		body--;
	body = body ? body - 1 : 0;
	for (size_t i = 0; i < body; i++)
		lines += text[i] == '\n';
	return body + (size_t) snprintf(text + body, room - body, "end %u %08x\n", lines,
					gt_crc32(text, body));
}

static void fuzz_table(const char *good, size_t len)
{
	char *text = malloc(len + 65), hint[64] = "pattern=ring,mem=bind,bind=numa";
	char line[] = "step=0,1,2,3 visible=0,1,2,3 tres=gres/gpu:per_task:2 tasks=2 local=1"
		" cpus=0-99 open=0,1 memory=10";
	char named[] = "step=0,1,2,3 visible=GPU-a,GPU-b tres=gpu:per_task:2 tasks=2 local=1"
		" uuids=GPU-a,GPU-b,GPU-c,GPU-d,GPU-e,GPU-f,GPU-g,GPU-h";
	char argument[] = "numbering=relative";
	char *argv[] = { argument };
	gt_table_t table;

	memcpy(text, good, len + 1);
	damage(text, len);
	if (next_random() % 8 == 0)
		len = next_random() % (len + 1);
	if (next_random() % 4)
		len = seal(text, len, len + 64);
	text[len] = '\0';
	damage(argument, strlen(argument));
	gt_settings_parse(&settings, next_random() % 2, argv, wrong);
	damage(hint, strlen(hint));
	gt_hint_apply(hint, &settings);
	if (gt_table_parse(&table, "fuzz", text, len, wrong)) {
		damage(line, strlen(line));
		print_plan(&table, line);
		damage(named, strlen(named));
		print_plan(&table, named);
	}
	gt_table_free(&table);
}

static int fuzz(const char *seed, const char *rounds, const char *path)
{
	static char good[1 << 20];
	FILE *file = fopen(path, "re");
	size_t len = file ? fread(good, 1, sizeof(good) - 1, file) : 0;

	if (file)
		fclose(file);
	if (!len || !freopen("/dev/null", "w", stdout))
		return 1;
	state = strtoul(seed, NULL, 10);
	for (unsigned long i = strtoul(rounds, NULL, 10); i; i--)
		fuzz_table(good, len);
	fprintf(stderr, "ok fuzz seed=%s rounds=%s\n", seed, rounds);
	return 0;
}

/* Says of each line of standard input whether it can be a hint. */
static int hints(void)
{
	static char line[8192];

	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		puts(gt_hint_refused(line) ? "refused" : "carried");
	}
	return 0;
}

int main(int argc, char *argv[])
{
	if (argc == 3 && !strcmp(argv[1], "run"))
		return run_claims(argv[2]);
	if (argc == 2 && !strcmp(argv[1], "hints"))
		return hints();
	if (argc >= 3 && !strcmp(argv[1], "plan"))
		return plans(argv[2], argc - 3, argv + 3);
	if (argc == 4 && !strcmp(argv[1], "devices"))
		return devices(argv[2], argv[3]);
	if (argc == 3 && !strcmp(argv[1], "uuids"))
		return uuids_of(argv[2]);
	if (argc == 5 && !strcmp(argv[1], "fuzz"))
		return fuzz(argv[2], argv[3], argv[4]);
	return run_claims(NULL);
}
