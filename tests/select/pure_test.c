/*
 * Tests of the select plugin's part without Slurm: X_test.c holds the claims about X.c.
 *   pure_test            all, "ok CLAIM" or "FAILED CLAIM: where"
 *   pure_test run CLAIM  one
 *   pure_test lines      request lines, to compare with the other codecs
 *   pure_test nodes      a table of 5,000 nodes, and a question about them after some changes
 *   pure_test replies    what each reply line of standard input means
 *   pure_test brackets   the hint and the note of each comment on standard input, "-" for none
 *   pure_test fuzz SEED ROUNDS   mutated input for every parser
 */
#include <inttypes.h>
#include <stdlib.h>

#include "../claims.h"
#include "admin_comment.h"
#include "part.h"
#include "mirror.h"
#include "node_set.h"
#include "protocol.h"
#include "settings.h"

static gt_reply_t reply;

static void print_lines(void)
{
	static const char *const hints[] = {
		"pattern=ring", "a=\"1\"\tb=50%\x01]", "\xc3\xa4 b", "",
	};
	gt_line_t line = { 0 };

	for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++) {
		gt_candidate_t a = { "dgx1", 8, 0xb6, 0x30, 1, NULL };
		gt_candidate_t b = { "node-64.x", 64, UINT64_MAX, 0, 4294967295u, NULL };

		gt_line_begin(&line, "place");
		gt_line_number(&line, "id", i + 1);
		gt_line_number(&line, "job", 4294967294u);
		gt_line_number(&line, "array", i);
		gt_line_number(&line, "uid", 1000);
		gt_line_text(&line, "partition", "gpu", 1024);
		gt_line_text(&line, "hint", hints[i], 4096);
		gt_line_number(&line, "postponed", 2);
		gt_line_number(&line, "waited_s", 61);
		gt_line_candidate(&line, &a);
		gt_line_candidate(&line, &b);
		if (gt_line_end(&line))
			fputs(line.text, stdout);
	}
	gt_line_begin(&line, "started");
	gt_line_number(&line, "job", 9);
	gt_line_number(&line, "array", 0);
	gt_line_placed(&line, "dgx1", 0x48);
	if (gt_line_end(&line))
		fputs(line.text, stdout);
	gt_line_free(&line);
}

#define NODES 5000

static void look(uint32_t index, gt_node_t *node)
{
	static char name[16];

	snprintf(name, sizeof(name), "node-%u", index);
	*node = (gt_node_t) {
		.name = name,
		.type = index % 7 ? "a100" : NULL,
		.total = index % 11 ? 8 : 64,
		.weight = index < 4096 ? 1 : index,
		.free = index % 11 ? index % 256 : UINT64_MAX,
	};
}

static void print_question(gt_mirror_t *mirror)
{
	gt_candidate_t own = { "node-1", 8, 0x1, 0x1, 1, NULL };
	uint64_t others[NODES / 64] = { 0x5555, 1ULL << 63 };
	gt_line_t line = { 0 };

	gt_line_begin(&line, "place");
	gt_line_number(&line, "id", 9);
	gt_line_number(&line, "job", 9);
	gt_line_number(&line, "array", 0);
	gt_line_number(&line, "uid", 1000);
	gt_line_number(&line, "postponed", 0);
	gt_line_number(&line, "waited_s", 0);
	gt_line_candidate(&line, &own);
	gt_mirror_write(mirror, &line);
	gt_line_set(&line, "others", others, NODES / 64);
	gt_line_number(&line, "heaviest", 1);
	if (gt_line_end(&line))
		fputs(line.text, stdout);
	gt_line_free(&line);
}

static void print_nodes(void)
{
	static const uint32_t changed[] = { 2, 4999, 0 };
	gt_line_t line = { 0 };
	gt_part_t part = { .id = 1, .parts = 2 };
	gt_mirror_t mirror;
	gt_copy_t copy;

	gt_mirror_init(&mirror);
	if (!gt_mirror_build(&mirror, NODES, look, true) ||
	    !gt_mirror_copy(&mirror, &copy))
		abort();
	for (; part.first < NODES; part.first += part.count) {
		part.part++;
		part.count = gt_table_rows_of_line(copy.table, part.first);
		gt_table_line(&line, copy.table, copy.free, &part);
		if (gt_line_end(&line))
			fputs(line.text, stdout);
	}
	printf("%" PRIx64 "\n", copy.digest);
	gt_mirror_give_back(&mirror, &copy);
	for (size_t i = 0; i < sizeof(changed) / sizeof(changed[0]); i++) {
		gt_node_t node;

		look(changed[i], &node);
		node.free = 0x3 << i;
		gt_mirror_look(&mirror, changed[i], &node);
	}
	print_question(&mirror);
	gt_line_free(&line);
	gt_table_free(mirror.table);
	free(mirror.free);
	free(mirror.is_changed);
}

static void print_picks(const char *key, const gt_pick_t *picks, size_t count)
{
	for (size_t i = 0; i < count; i++)
		printf(" %s=%s:%" PRIx64, key, picks[i].name, picks[i].mask);
}

static void print_replies(void)
{
	static const char *const kinds[] = { "use", "wait", "pass", "error" };
	static char line[GT_REPLY_MAX + 1];

	while (fgets(line, sizeof(line), stdin)) {
		const char *wrong;

		line[strcspn(line, "\n")] = '\0';
		if ((wrong = gt_reply_parse(line, &reply))) {
			printf("refused: %s\n", wrong);
			continue;
		}
		printf("%s %" PRIu64 " s=%u", kinds[reply.kind], reply.id,
		       reply.wait_s);
		print_picks("node", reply.picks, reply.pick_count);
		print_picks("alt", reply.alts, reply.alt_count);
		if (reply.max_wait_s)
			printf(" max_wait_s=%u", reply.max_wait_s);
		printf(" note=%s\n", reply.note);
	}
}

static void print_brackets(void)
{
	static char line[8192];

	while (fgets(line, sizeof(line), stdin)) {
		gt_bracket_t bracket;

		line[strcspn(line, "\n")] = '\0';
		gt_bracket_read(line, &bracket);
		if (bracket.found)
			printf("%.*s\t%.*s\n", (int) bracket.hint.len,
			       bracket.hint.text, (int) bracket.note.len,
			       bracket.note.text);
		else
			puts("-");
	}
}

static uint64_t chance_state;

static uint32_t chance(uint32_t below)
{
	chance_state ^= chance_state << 13;
	chance_state ^= chance_state >> 7;
	chance_state ^= chance_state << 17;
	return (uint32_t) (chance_state % below);
}

static void mutate(char *text, size_t size)
{
	static const char spice[] = " =%/|][\t\n()0aF\xff\x01";
	size_t len = strlen(text);

	for (uint32_t n = chance(6); n && len; n--) {
		size_t at = chance((uint32_t) len);

		switch (chance(3)) {
		case 0:
			text[at] = spice[chance(sizeof(spice) - 1)];
			break;
		case 1:
			memmove(text + at, text + at + 1, len - at);
			break;
		default:
			if (len + 1 < size) {
				memmove(text + at + 1, text + at, len - at + 1);
				text[at] = (char) (chance(255) + 1);
			}
		}
		len = strlen(text);
	}
}

static void fuzz_one(char *text, size_t size)
{
	gt_bracket_t bracket;
	gt_waiting_t waiting;
	gt_config_t config;
	char wrong[300], *comment, *copy;

	mutate(text, size);
	gt_bracket_read(text, &bracket);
	gt_waiting_read(bracket.note, &waiting);
	comment = gt_bracket_write(text, gt_hint(NULL, text), "note");
	gt_bracket_read(comment, &bracket);
	if (!bracket.found)
		abort();
	free(comment);
	gt_is_part(text);
	gt_reply_id(text);
	copy = strdup(text);
	gt_config_parse(&config, "fuzz", copy, wrong, sizeof(wrong));
	free(copy);
	copy = strdup(text);
	gt_reply_parse(copy, &reply);
	free(copy);
}

static void fuzz(uint64_t seed, uint64_t rounds)
{
	static const char *const seeds[] = {
		"use id=12 node=dgx1/9 node=dgx2/f0 alt=dgx1/3 note=a%20b",
		"wait id=1 s=30 note=later",
		"ok id=3 digest=9f1c resync=1",
		"x [gpu-topo: a=b | waiting 3/10 since 1700000000: why "
		"(until 1700000030, begin 1699999000)] y",
		"gpu-topo: pattern=ring",
		"deadline_ms=50\nsocket=/run/x\n# c\nrespect_weight=no",
		"nvidia_a100_1g.5gb",
		"mi300x_cpx_nps4",
	};
	char text[400];

	chance_state = seed * 2654435761u + 1;
	for (uint64_t i = 0; i < rounds; i++) {
		snprintf(text, sizeof(text), "%s",
			 seeds[i % (sizeof(seeds) / sizeof(seeds[0]))]);
		fuzz_one(text, sizeof(text));
	}
	printf("ok fuzz seed=%" PRIu64 " rounds=%" PRIu64 "\n", seed, rounds);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "run") && argc == 3)
		return run_claims(argv[2]);
	if (!strcmp(what, "lines"))
		print_lines();
	else if (!strcmp(what, "nodes"))
		print_nodes();
	else if (!strcmp(what, "replies"))
		print_replies();
	else if (!strcmp(what, "brackets"))
		print_brackets();
	else if (!strcmp(what, "fuzz") && argc == 4)
		fuzz(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
	else
		return run_claims(NULL);
	return 0;
}
