/* What the plugin writes and reads, in words for the other codecs to compare. */
#include "programs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "admin_comment.h"
#include "protocol.h"

static gt_reply_t reply;

extern void print_lines(void)
{
	static const char *const hints[] = {
		"pattern=ring", "a=\"1\"\tb=50%\x01]", "\xc3\xa4 b", "",
	};
	gt_line_t line = { 0 };

	for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++) {
		gt_candidate_t a = { "dgx1", 8, 0xb6, 0x30, 1 };
		gt_candidate_t b = { "node-64.x", 64, UINT64_MAX, 0, 4294967295u };

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

static void print_picks(const char *key, const gt_pick_t *picks, size_t count)
{
	for (size_t i = 0; i < count; i++)
		printf(" %s=%s:%" PRIx64, key, picks[i].name, picks[i].mask);
}

extern void print_replies(void)
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

extern void print_brackets(void)
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
