/*
 * Tests of the SPANK plugin's part without Slurm.
 *   pure_test list | run CLAIM      the claims, one claim
 *   pure_test plan TABLE [key=value ...]   for each line of stdin the plan of a task
 *   pure_test devices DIR TABLE     which device files of DIR can be opened
 *   pure_test fuzz SEED ROUNDS TABLE       mutated tables, hints, arguments and tasks
 * A line of stdin: words key=value, see read_task.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "crc32.h"
#include "hint.h"
#include "kernel.h"
#include "plan.h"

static char failed_at[400];

/* Every table is read through this: in pieces, and interrupted, as a read may be. */
extern ssize_t read(int fd, void *buffer, size_t count)
{
	static unsigned calls;

	if (++calls % 3 == 0) {
		errno = EINTR;
		return -1;
	}
	return syscall(SYS_read, fd, buffer, count < 1000 ? count : 1000);
}

#define CHECK(condition) \
	do { \
		if (!(condition) && !failed_at[0]) \
			snprintf(failed_at, sizeof(failed_at), "line %d: %s", \
				 __LINE__, #condition); \
	} while (0)

#define CHECK_TEXT(got, expected) \
	do { \
		const char *got_ = (got), *expected_ = (expected); \
		if (strcmp(got_, expected_) && !failed_at[0]) \
			snprintf(failed_at, sizeof(failed_at), \
				 "line %d: \"%.150s\" is not \"%.150s\"", \
				 __LINE__, got_, expected_); \
	} while (0)

static gt_settings_t settings;
static char wrong[GT_NOTE];

static bool settings_of(const char *one, const char *two)
{
	char *argv[] = { (char *) (uintptr_t) one, (char *) (uintptr_t) two };

	wrong[0] = '\0';
	return gt_settings_parse(&settings, one ? two ? 2 : 1 : 0, argv, wrong);
}

/* ---------------------------------------------------------------- claims */

static void cpu_lists_are_read_and_written(void)
{
	gt_cpuset_t set, other;
	char text[64];

	CHECK(gt_cpuset_parse(&set, "8,0-3,5"));
	gt_cpuset_print(&set, text, sizeof(text));
	CHECK_TEXT(text, "0-3,5,8");
	CHECK(gt_cpuset_count(&set) == 6);
	CHECK(gt_cpuset_parse(&other, "2-5,8191"));
	gt_cpuset_and(&set, &other);
	gt_cpuset_print(&set, text, sizeof(text));
	CHECK_TEXT(text, "2-3,5");
	gt_cpuset_print(&set, text, 4);
	CHECK(strlen(text) < 4);
}

static void bad_cpu_lists_are_refused(void)
{
	static const char *const bad[] = { "", ",", "1,", "-1", "3-1", "0-8192", "8192", "1 ",
		"0x1", "99999999999999999999", "1--2", "a" };
	gt_cpuset_t set;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK(!gt_cpuset_parse(&set, bad[i]));
}

static void no_arguments_mean_the_defaults(void)
{
	CHECK(settings_of(NULL, NULL));
	CHECK_TEXT(settings.table, "/etc/slurm/gputopo-launch.table");
	CHECK_TEXT(settings.pattern, "ring");
	CHECK(settings.bind && settings.mem == GT_MEM_PREFERRED);
	CHECK(settings.nic == GT_NIC_ON && settings.numbering == GT_AUTO);
}

static void a_wrong_argument_names_its_key(void)
{
	CHECK(!settings_of("mem=bind", "memory=bind"));
	CHECK_TEXT(wrong, "argument \"memory\": no such key; expected table, pattern, bind, mem,"
		   " nic, numbering or devices");
	CHECK(settings.mem == GT_MEM_PREFERRED);
	CHECK(!settings_of("mem=strict", NULL));
	CHECK_TEXT(wrong, "argument mem: \"strict\"; expected preferred, bind, interleave or"
		   " none");
	CHECK(!settings_of("table=x", NULL));
	CHECK_TEXT(wrong, "argument table: \"x\"; expected an absolute path");
	CHECK(!settings_of("nic=on", "nic=off"));
	CHECK_TEXT(wrong, "argument \"nic=off\": given twice");
	CHECK(!settings_of("debug", NULL));
	CHECK_TEXT(wrong, "argument \"debug\": expected key=value");
}

static void a_hint_changes_only_what_it_names(void)
{
	CHECK(settings_of(NULL, NULL));
	CHECK(gt_hint_apply("policy=mapa, mem = bind ,spread", &settings));
	CHECK(settings.mem == GT_MEM_BIND && settings.bind);
	CHECK_TEXT(settings.pattern, "ring");
	CHECK(gt_hint_apply("pattern=tree,bind=none", &settings));
	CHECK(!settings.bind);
	CHECK_TEXT(settings.pattern, "tree");
	CHECK(gt_hint_apply("mem=,mem=strict,bind,=,,pattern=", &settings));
	CHECK(settings.mem == GT_MEM_BIND);
	CHECK_TEXT(settings.pattern, "tree");
	CHECK(gt_hint_apply("", &settings));
}

static void a_hint_of_off_opts_out(void)
{
	CHECK(settings_of(NULL, NULL));
	CHECK(!gt_hint_apply("off", &settings));
	CHECK(!gt_hint_apply("  off ", &settings));
	CHECK(gt_hint_apply("offer=1", &settings));
}

static void a_hint_that_cannot_be_carried_is_refused(void)
{
	char longest[GT_HINT + 2];

	memset(longest, 'a', sizeof(longest));
	longest[GT_HINT + 1] = '\0';
	CHECK_TEXT(gt_hint_refused(longest), "is longer than 1024 bytes");
	longest[GT_HINT] = '\0';
	CHECK(!gt_hint_refused(longest));
	CHECK(!gt_hint_refused("pattern=ring"));
	CHECK(gt_hint_refused("a\nb") && gt_hint_refused("a\tb") && gt_hint_refused("\x7f"));
}

static void the_checksum_is_zlibs(void)
{
	CHECK(gt_crc32("123456789", 9) == 0xcbf43926);
	CHECK(gt_crc32("", 0) == 0);
}

static void gpu_lists_are_read_strictly(void)
{
	gt_list_t list;

	CHECK(gt_list_parse(&list, "3,0,127"));
	CHECK(list.count == 3 && list.gpu[0] == 3 && list.gpu[2] == 127);
	CHECK(!gt_list_parse(&list, "") && !gt_list_parse(&list, "0,0"));
	CHECK(!gt_list_parse(&list, "128") && !gt_list_parse(&list, "GPU-1a2b"));
	CHECK(!gt_list_parse(&list, "0-3") && !gt_list_parse(&list, "0,"));
}

#define TEST(name) { #name, name }
static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	TEST(cpu_lists_are_read_and_written),
	TEST(bad_cpu_lists_are_refused),
	TEST(no_arguments_mean_the_defaults),
	TEST(a_wrong_argument_names_its_key),
	TEST(a_hint_changes_only_what_it_names),
	TEST(a_hint_of_off_opts_out),
	TEST(a_hint_that_cannot_be_carried_is_refused),
	TEST(the_checksum_is_zlibs),
	TEST(gpu_lists_are_read_strictly),
};
#define TESTS (sizeof(tests) / sizeof(tests[0]))

static int run_claim(const char *name)
{
	for (size_t i = 0; i < TESTS; i++) {
		if (name && strcmp(name, tests[i].name))
			continue;
		failed_at[0] = '\0';
		tests[i].run();
		if (failed_at[0]) {
			printf("FAILED %s: %s\n", tests[i].name, failed_at);
			return 1;
		}
		printf("ok %s\n", tests[i].name);
	}
	return 0;
}

/* ---------------------------------------------------------------- plans */

/* A NIC named so is on no machine; a NUMA node has 1000 MB where the table is silent. */
static bool has_nic(const char *name)
{
	return strncmp(name, "absent", 6);
}

static long numa_memory_mb(int number)
{
	return number < GT_NUMA ? 1000 : GT_UNKNOWN;
}

typedef struct {
	gt_ask_t ask;
	gt_place_t place;
} task_t;

static void read_word(task_t *task, const char *key, const char *value)
{
	if (!strcmp(key, "visible"))
		task->ask.visible = value;
	else if (!strcmp(key, "step"))
		task->ask.step_gpus = value;
	else if (!strcmp(key, "tres"))
		task->ask.tres_bind = value;
	else if (!strcmp(key, "tasks"))
		task->ask.tasks = atoi(value);
	else if (!strcmp(key, "local"))
		task->ask.local_id = atoi(value);
	else if (!strcmp(key, "cpubind"))
		task->ask.is_cpu_bound = task->place.has_cpu_bind = true;
	else if (!strcmp(key, "membind"))
		task->place.has_mem_bind = true;
	else if (!strcmp(key, "cpus"))
		gt_cpuset_parse(&task->place.cpus, value);
	else if (!strcmp(key, "percpu"))
		task->place.cpus_per_task = atoi(value);
	else if (!strcmp(key, "memory"))
		task->place.memory_mb = strtoul(value, NULL, 10);
	else if (!strcmp(key, "open")) {
		task->ask.access.is_known = task->ask.access.has_minors = true;
		task->ask.access.is_restricted = true;
		gt_list_parse(&task->ask.access.open, value);
	}
}

static void read_task(task_t *task, char *line)
{
	char *rest = NULL;

	memset(task, 0, sizeof(*task));
	task->ask.visible = task->ask.step_gpus = task->ask.tres_bind = "";
	task->ask.tasks = 1;
	task->place.has_nic = has_nic;
	task->place.numa_memory_mb = numa_memory_mb;
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
	task_t task;
	char note[GT_NOTE], cpus[GT_TEXT] = "-";

	read_task(&task, line);
	if (!gt_plan(table, &settings, &task.ask, &task.place, &plan, note)) {
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

/* The last line is made to fit again, so that the damage gets past it. */
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

/* Whether each line of standard input is a text that a hint may be. */
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
	if (argc == 2 && !strcmp(argv[1], "list")) {
		for (size_t i = 0; i < TESTS; i++)
			printf("%s\n", tests[i].name);
		return 0;
	}
	if (argc == 3 && !strcmp(argv[1], "run"))
		return run_claim(argv[2]);
	if (argc == 2 && !strcmp(argv[1], "hints"))
		return hints();
	if (argc >= 3 && !strcmp(argv[1], "plan"))
		return plans(argv[2], argc - 3, argv + 3);
	if (argc == 4 && !strcmp(argv[1], "devices"))
		return devices(argv[2], argv[3]);
	if (argc == 5 && !strcmp(argv[1], "fuzz"))
		return fuzz(argv[2], argv[3], argv[4]);
	return run_claim(NULL);
}
