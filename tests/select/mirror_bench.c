/*
 * What a question about all nodes costs in the select plugin's part without Slurm, and a wait
 * beside others: figures, no test.   mirror_bench [ROUNDS]
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "mirror.h"
#include "node_set.h"
#include "postponed.h"

#define MOST 25000
#define CHANGES 10
#define AUDITED 32

static char names[MOST][16];
static gt_node_t nodes[MOST];
static uint64_t offered[MOST / 64 + 1];
static gt_mirror_t mirror;
static gt_line_t line;

static uint32_t chance(uint32_t below)
{
	static uint64_t state = 1;

	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t) (state >> 33) % below;
}

static void look(uint32_t index, gt_node_t *node)
{
	*node = nodes[index];
}

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double) now.tv_sec * 1e6 + (double) now.tv_nsec / 1e3;
}

/* Ten nodes change, and so many are looked at as an audit. */
static void keep(uint32_t count, uint32_t *next)
{
	for (int i = 0; i < CHANGES; i++) {
		uint32_t index = chance(count);

		nodes[index].free = chance(256);
		gt_mirror_look(&mirror, index, &nodes[index]);
	}
	for (int i = 0; i < AUDITED; i++, ++*next)
		gt_mirror_look(&mirror, *next % count, &nodes[*next % count]);
}

static void ask(size_t words)
{
	gt_candidate_t own = { "node00001", 8, 0xff, 0x3, 1, NULL };

	gt_line_begin(&line, "place");
	gt_line_number(&line, "id", 4711);
	gt_line_number(&line, "job", 4711);
	gt_line_candidate(&line, &own);
	gt_mirror_write(&mirror, &line);
	gt_line_set(&line, "others", offered, words);
	gt_line_end(&line);
	gt_mirror_answered(&mirror, false);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *) a, y = *(const double *) b;

	return (x > y) - (x < y);
}

/* Questions with so many in a hundred nodes offered */
static void measure(uint32_t count, uint32_t percent, uint32_t rounds)
{
	double *took_us = calloc(rounds, sizeof(*took_us));
	size_t words = count / 64 + 1, most = 0;
	uint32_t next = 0;

	for (uint32_t n = 0; took_us && n < rounds; n++) {
		double start_us;

		for (uint32_t i = 0; i < count; i++) {
			uint64_t bit = 1ULL << i % 64;

			offered[i / 64] &= ~bit;
			if (chance(100) < percent)
				offered[i / 64] |= bit;
		}
		start_us = now_us();
		keep(count, &next);
		ask(words);
		took_us[n] = now_us() - start_us;
		if (line.len > most)
			most = line.len;
	}
	if (!took_us)
		exit(1);
	qsort(took_us, rounds, sizeof(*took_us), by_value);
	printf("%u nodes, %u changed, %u%% offered: median %.1f us, p99 %.1f us, at most %zu bytes\n",
	       count, CHANGES, percent, took_us[rounds / 2],
	       took_us[rounds * 99 / 100], most);
	free(took_us);
}

static void begin(uint32_t count)
{
	double start_us = now_us(), built_us;
	gt_copy_t copy;

	for (uint32_t i = 0; i < count; i++) {
		snprintf(names[i], sizeof(names[i]), "node%05u", i);
		nodes[i] = (gt_node_t) { names[i], "a100", 8, 1, 0xff };
	}
	start_us = now_us();
	if (!gt_mirror_build(&mirror, count, look, true))
		exit(1);
	built_us = now_us();
	if (!gt_mirror_copy(&mirror, &copy))
		exit(1);
	printf("%u nodes: table built in %.0f us, copied for the sender in %.0f us\n",
	       count, built_us - start_us, now_us() - built_us);
	gt_mirror_sent(&mirror, &copy);
	gt_mirror_give_back(&mirror, &copy);
}

static bool is_asleep(uint32_t job_id, void *arg)
{
	(void) arg;
	return gt_postponed_find(job_id);
}

/* Of so many jobs that have waited: one more is postponed, and one that had GPUs ends. */
static double wait_us(uint32_t jobs, uint32_t rounds)
{
	double from;

	for (uint32_t id = 1; id <= jobs; id++) {
		gt_postponed_add(id);
		if (gt_asleep_has_room(id, id))
			gt_asleep_add(id, id);
	}
	from = now_us();
	for (uint32_t id = jobs + 1; id <= jobs + rounds; id++) {
		if (gt_asleep_has_room(id, id))
			gt_asleep_add(id, id);
		gt_postponed_add(id)->has_note = true;
		gt_asleep_keep(is_asleep, NULL);
		gt_postponed_drop(id);
	}
	from = now_us() - from;
	gt_postponed_free();
	return from / rounds;
}

int main(int argc, char **argv)
{
	static const uint32_t sizes[] = { 12500, 25000 };
	static const uint32_t percents[] = { 100, 90, 50, 5 };
	uint32_t rounds = argc > 1 ? (uint32_t) strtoul(argv[1], NULL, 10) : 2000;

	gt_mirror_init(&mirror);
	for (int s = 0; rounds && s < 2; s++) {
		begin(sizes[s]);
		for (int p = 0; p < 4; p++)
			measure(sizes[s], percents[p], rounds);
	}
	if (rounds)
		printf("a wait and an end beside 100 waiting jobs %.2f us, 10,000 %.2f us\n",
		       wait_us(100, rounds), wait_us(10000, rounds));
	return 0;
}
