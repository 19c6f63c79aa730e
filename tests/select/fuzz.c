#include "programs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin_comment.h"
#include "mig.h"
#include "protocol.h"
#include "settings.h"

static gt_reply_t reply;
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
	comment = gt_bracket_write(text, gt_comment_hint(text), "note");
	gt_bracket_read(comment, &bracket);
	if (!bracket.found)
		abort();
	free(comment);
	gt_is_mig(text);
	gt_reply_id(text);
	copy = strdup(text);
	gt_config_parse(&config, "fuzz", copy, wrong, sizeof(wrong));
	free(copy);
	copy = strdup(text);
	gt_reply_parse(copy, &reply);
	free(copy);
}

extern void fuzz(uint64_t seed, uint64_t rounds)
{
	static const char *const seeds[] = {
		"use id=12 node=dgx1/9 node=dgx2/f0 alt=dgx1/3 note=a%20b",
		"wait id=1 s=30 note=later",
		"x [gpu-topo: a=b | waiting 3/10 since 1700000000: why "
		"(until 1700000030, begin 1699999000)] y",
		"gpu-topo: pattern=ring",
		"deadline_ms=50\nsocket=/run/x\n# c\nrespect_weight=no",
		"nvidia_a100_1g.5gb",
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
