#include "admin_comment.h"

#include <stdlib.h>

#include "../claims.h"

static void writes(const char *comment, const char *hint, const char *note,
		   const char *expected)
{
	char *text = gt_bracket_write(comment,
				      (gt_slice_t) { hint, strlen(hint) }, note);

	CHECK_TEXT(text, expected);
	free(text);
}

CLAIM(the_bracket_is_replaced_and_the_rest_kept)
{
	writes(NULL, "", "n", "[gpu-topo: | n]");
	writes("", "pattern=ring", "", "[gpu-topo: pattern=ring]");
	writes("ticket 7", "a=b", "n", "ticket 7 [gpu-topo: a=b | n]");
	writes("x [gpu-topo: a=b] y", "a=b", "n", "x [gpu-topo: a=b | n] y");
	writes("[gpu-topo: a=b | old]", "a=b", "new", "[gpu-topo: a=b | new]");
	writes("[gpu-topo: a=b | old] z", "a=b", NULL, "[gpu-topo: a=b] z");
	writes("[a] broken [gpu-topo: a", "h", "n",
	       "[gpu-topo: h | n] [a] broken [gpu-topo: a");
	writes("[site [gpu-topo: a]]", "h", "n",
	       "[site [gpu-topo: a]] [gpu-topo: h | n]");
	writes(NULL, "a]b|c[d", "n", "[gpu-topo: a b c d | n]");
}

static void removes(const char *comment, const char *expected)
{
	char *text = gt_bracket_remove(comment);

	CHECK_TEXT(text, expected);
	free(text);
}

CLAIM(the_bracket_is_removed_and_the_rest_kept)
{
	removes(NULL, "");
	removes("[gpu-topo: a=b | n]", "");
	removes("JS1:x [gpu-topo: a=b] y", "JS1:x y");
	removes("y [gpu-topo:]", "y");
	removes("[gpu-topo: a=b | n] [gpu-loan: may]", "[gpu-loan: may]");
	removes("[site [gpu-topo: a]]", "[site [gpu-topo: a]]");
}

CLAIM(the_hint_of_the_option_is_found)
{
	gt_slice_t hint = gt_hint_of_option(
		"_SLURM_SPANK_OPTION_gputopo_gpu_topo= pattern=tree ");

	CHECK(hint.len == 12 && !strncmp(hint.text, "pattern=tree", 12));
	CHECK(!gt_hint_of_option("_SLURM_SPANK_OPTION_other_gpu_topo=x").len);
	CHECK(!gt_hint_of_option("").len);
}

CLAIM(the_hint_is_found)
{
	gt_bracket_t bracket;
	gt_slice_t hint;

	gt_bracket_read("x [gpu-topo:  a=b,c=d  | note ] y", &bracket);
	CHECK(bracket.found && bracket.hint.len == 7 && bracket.note.len == 4);
	CHECK(!strncmp(bracket.hint.text, "a=b,c=d", 7));
	gt_bracket_read("no bracket", &bracket);
	CHECK(!bracket.found && !bracket.hint.len && !bracket.note.len);
	CHECK(bracket.hint.text && bracket.note.text);
	gt_bracket_read(NULL, &bracket);
	CHECK(!bracket.found);
	hint = gt_hint("no bracket", "gpu-topo:  pattern=tree ");
	CHECK(hint.len == 12 && !strncmp(hint.text, "pattern=tree", 12));
	CHECK(!gt_hint(NULL, "see gpu-topo: x").len);
	CHECK(!gt_hint(NULL, NULL).len);
}

CLAIM(a_wait_survives_in_the_comment)
{
	gt_waiting_t waiting = {
		.count = 3,
		.cap = 10,
		.since = 1700000000,
		.until = 1700000030,
		.begin = 1699999000,
		.why = { "a pair (0,3) is busy", 20 },
	}, read;
	char note[400];
	gt_bracket_t bracket;
	char *comment;

	gt_waiting_write(note, sizeof(note), &waiting);
	CHECK_TEXT(note, "waiting 3/10 since 1700000000: a pair (0,3) is busy "
			 "(until 1700000030, begin 1699999000)");
	comment = gt_bracket_write("x", (gt_slice_t) { "h", 1 }, note);
	gt_bracket_read(comment, &bracket);
	CHECK(gt_waiting_read(bracket.note, &read));
	CHECK(read.why.len == 20);
	CHECK(!strncmp(read.why.text, "a pair (0,3) is busy", 20));
	read.why = waiting.why;
	CHECK(!memcmp(&read, &waiting, sizeof(read)));
	free(comment);
}

CLAIM(other_notes_are_no_waits)
{
	static const char *const notes[] = {
		"", "dgx1:0,3 mapa", "waiting", "waiting 1/2",
		"waiting 1/2 since", "waiting x/2 since 3: a",
		"waiting 1/2 since 3 a",
	};
	static char long_note[513] = "waiting 1/2 since 3: ";
	gt_waiting_t waiting;

	for (size_t i = 0; i < sizeof(notes) / sizeof(notes[0]); i++)
		CHECK(!gt_waiting_read((gt_slice_t) { notes[i],
						      strlen(notes[i]) },
				       &waiting) && !waiting.count);
	CHECK(gt_waiting_read((gt_slice_t) { "waiting 1/2 since 3: a", 22 },
			      &waiting));
	CHECK(waiting.count == 1 && !waiting.until && !waiting.begin);
	CHECK(waiting.why.len == 1 && waiting.why.text[0] == 'a');
	/* no note of ours is as long */
	memset(long_note + 21, 'a', 491);
	CHECK(gt_waiting_read((gt_slice_t) { long_note, 511 }, &waiting));
	CHECK(waiting.why.len == 490);
	CHECK(!gt_waiting_read((gt_slice_t) { long_note, 512 }, &waiting));
	/* a note whose end was cut has no times */
	CHECK(gt_waiting_read((gt_slice_t) {
			"waiting 1/2 since 3: a (until 77, be", 36 }, &waiting));
	CHECK(waiting.count == 1 && !waiting.until && !waiting.begin);
	CHECK(waiting.why.len == 15);
}
