#include "protocol.h"

#include "../claims.h"

static gt_line_t line;
static gt_reply_t reply;

static const char *parse(const char *text)
{
	static char copy[GT_REPLY_MAX + 1];

	snprintf(copy, sizeof(copy), "%s", text);
	return gt_reply_parse(copy, &reply);
}

CLAIM(a_question_is_one_encoded_line)
{
	gt_candidate_t dgx1 = { "dgx1", 8, 0xb6, 0x30, 1, NULL };

	gt_line_begin(&line, "place");
	gt_line_number(&line, "id", 7);
	gt_line_text(&line, "hint", "a=\"1\"\tb=50%\x7f\n\xc3\xa4", 4096);
	gt_line_text(&line, "account", "", 100);
	gt_line_text(&line, "type", NULL, 100);
	gt_line_candidate(&line, &dgx1);
	CHECK(gt_line_end(&line));
	CHECK_TEXT(line.text, "place id=7 hint=a=\"1\"%09b=50%25%7F%0A%C3%A4 "
			      "node=dgx1/8/b6/30/1\n");
}

CLAIM(a_node_of_shares_tells_what_each_gpu_has_left)
{
	gt_shares_t shares = { 3, 0x4, { 1, 0, UINT64_MAX } };
	gt_candidate_t node = { "dgx1", 3, 0x5, 0x1, 1, &shares };

	gt_line_begin(&line, "place");
	gt_line_candidate(&line, &node);
	CHECK(gt_line_end(&line));
	CHECK_TEXT(line.text, "place node=dgx1/3/5/1/1/4/1,0,18446744073709551615\n");
}

CLAIM(a_long_value_is_cut)
{
	gt_line_begin(&line, "place");
	gt_line_text(&line, "hint", "abcdef", 3);
	CHECK(gt_line_end(&line));
	CHECK_TEXT(line.text, "place hint=abc\n");
}

CLAIM(no_name_is_longer_than_the_engine_takes)
{
	static char name[2000];
	gt_candidate_t node = { name, 8, 0xb6, 0x30, 1, NULL };

	memset(name, 'n', sizeof(name) - 1);
	gt_line_begin(&line, "place");
	gt_line_candidate(&line, &node);
	CHECK(gt_line_end(&line));
	CHECK(strcspn(line.text, "/") == strlen("place node=") + 1024);
	gt_line_begin(&line, "started");
	gt_line_placed(&line, name, 1);
	CHECK(gt_line_end(&line));
	CHECK(strcspn(line.text, "/") == strlen("started node=") + 1024);
	gt_line_free(&line);
}

CLAIM(a_line_over_one_mebibyte_is_never_sent)
{
	gt_line_begin(&line, "place");
	for (int i = 0; i < 200000; i++)
		gt_line_placed(&line, "somenode", 0xff);
	CHECK(!gt_line_end(&line));
	gt_line_begin(&line, "place");
	CHECK(gt_line_end(&line));
	gt_line_free(&line);
}

CLAIM(use_gives_nodes_alternatives_and_note)
{
	CHECK(!parse("use id=12 node=dgx1/9 node=dgx2/F0 alt=dgx1/3 note=a%20b"));
	CHECK(reply.kind == GT_REPLY_USE && reply.id == 12);
	CHECK(reply.pick_count == 2 && reply.alt_count == 1);
	CHECK_TEXT(reply.picks[1].name, "dgx2");
	CHECK(reply.picks[1].mask == 0xf0 && reply.alts[0].mask == 3);
	CHECK_TEXT(reply.note, "a b");
}

CLAIM(wait_and_pass_are_read)
{
	CHECK(!parse("wait id=1 s=30 note=later quiet=1") && reply.quiet);
	CHECK(!parse("wait id=1 s=30 note=later") && !reply.quiet);
	CHECK(reply.kind == GT_REPLY_WAIT && reply.wait_s == 30);
	CHECK(!reply.max_wait_s);
	CHECK(!parse("wait id=1 s=30 max_wait_s=600"));
	CHECK(reply.max_wait_s == 600);
	CHECK(!parse("pass id=2"));
	CHECK(reply.kind == GT_REPLY_PASS && !reply.note[0]);
	CHECK(!parse("error id=0 message=no%20idea"));
	CHECK(reply.kind == GT_REPLY_ERROR);
}

CLAIM(what_is_said_of_the_table_is_read)
{
	CHECK(!parse("ok id=3 digest=a"));
	CHECK(reply.kind == GT_REPLY_OK && reply.has_digest && reply.digest == 10);
	CHECK(!parse("ok id=3") && !reply.has_digest);
	CHECK(!parse("use id=1 node=a/1 resync=1") && reply.resync);
	CHECK(!parse("use id=1 node=a/1 resync=0") && !reply.resync);
	CHECK(!parse("pass id=1") && !reply.resync);
}

CLAIM(numbers_are_written_as_they_are)
{
	gt_line_begin(&line, "nodes");
	gt_line_hex(&line, "table", UINT64_MAX);
	gt_line_add(&line, " free=");
	gt_line_add_hex(&line, 0);
	gt_line_add(&line, ",");
	gt_line_add_hex(&line, 0xabcdef0123456789);
	gt_line_add(&line, " total=");
	gt_line_add_decimal(&line, 0);
	gt_line_add(&line, ",");
	gt_line_add_decimal(&line, UINT64_MAX);
	gt_line_add(&line, " names=");
	gt_line_add_text(&line, "a%b", 2);
	CHECK(gt_line_end(&line));
	CHECK_TEXT(line.text, "nodes table=ffffffffffffffff "
			      "free=0,abcdef0123456789 "
			      "total=0,18446744073709551615 names=a%25\n");
	gt_line_free(&line);
}

CLAIM(keys_of_a_later_protocol_are_ignored)
{
	CHECK(!parse("use id=1 node=a/1 rank.a=0,3 confidence=high"));
}

CLAIM(malformed_replies_are_refused)
{
	static const char *const bad[] = {
		"", " ", "use", "use id=1", "USE id=1 node=a/1", "use node=a/1",
		"use id=x node=a/1", "use id=1 node=a", "use id=1 node=/1",
		"use id=1 node=a/", "use id=1 node=a/0", "use id=1 node=a/g",
		"use id=1 node=a/11111111111111111", "use id=1 id=1 node=a/1",
		"use id=1 node=a/1 note=a note=b", "use id=1 node=%/1",
		"use id=1 node=%0/1", "use id=1 node=%00/1", "use id=1 node=a\t/1",
		"use id=1 node=a/1 =b", "use id=1 node=a/1 b", "wait id=1",
		"wait id=1 s=0", "wait id=1 s=-3", "wait id=1 s=1.5",
		"wait id=1 s=99999999", "wait id=1 s=9 s=9",
		"ok id=1 digest=", "ok id=1 digest=xyz",
		"ok id=1 digest=1 digest=1", "pass id=1 resync=1 resync=1",
		"wait id=1 s=9 max_wait_s=0", "wait id=1 s=9 max_wait_s=604801",
		"use id=99999999999999999999 node=a/1", "\x80use id=1 node=a/1",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (!parse(bad[i]) && !failed_at[0])
			snprintf(failed_at, sizeof(failed_at), "accepted: %s",
				 bad[i]);
}

CLAIM(too_many_nodes_are_refused)
{
	static char text[GT_REPLY_MAX];
	size_t len = (size_t) snprintf(text, sizeof(text), "use id=1");

	while (len + 16 < sizeof(text))
		len += (size_t) snprintf(text + len, sizeof(text) - len,
					 " node=a/1");
	CHECK_TEXT(parse(text), "too many nodes");
}

CLAIM(a_note_cannot_break_the_bracket)
{
	CHECK(!parse("pass id=1 note=a]b|c[d%0Ae%C3%A4"));
	CHECK_TEXT(reply.note, "a b c d e  ");
	CHECK(!parse("pass id=1 note="
		     "0123456789012345678901234567890123456789012345678901234567"
		     "0123456789012345678901234567890123456789012345678901234567"
		     "0123456789012345678901234567890123456789012345678901234567"
		     "0123456789012345678901234567890123456789012345678901234567"));
	CHECK(strlen(reply.note) == GT_NOTE_MAX);
}
