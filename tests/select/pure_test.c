/*
 * Tests of the select plugin's part without Slurm. Each test is a claim; run as
 *   pure_test            all, "ok CLAIM" or "FAILED CLAIM: where"
 *   pure_test list       the claims
 *   pure_test run CLAIM  one
 *   pure_test lines      request lines, to compare with the other codecs
 *   pure_test replies    reads reply lines from stdin, prints what they mean
 *   pure_test fuzz SEED ROUNDS   mutated input for every parser
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "admin_comment.h"
#include "budget.h"
#include "kill_switch.h"
#include "mig.h"
#include "protocol.h"
#include "rpc.h"
#include "settings.h"
#include "stats.h"

static char failed_at[400];

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

static gt_reply_t reply;

static const char *parse(const char *text)
{
	static char line[GT_REPLY_MAX + 1];

	snprintf(line, sizeof(line), "%s", text);
	return gt_reply_parse(line, &reply);
}

/* ---------------------------------------------------------------- protocol */

static void a_question_is_one_encoded_line(void)
{
	gt_line_t line = { 0 };
	gt_candidate_t dgx1 = { "dgx1", 8, 0xb6, 0x30, 1 };

	gt_line_begin(&line, "place");
	gt_line_number(&line, "id", 7);
	gt_line_text(&line, "hint", "a=\"1\"\tb=50%\x7f\n\xc3\xa4", 4096);
	gt_line_text(&line, "account", "", 100);
	gt_line_text(&line, "type", NULL, 100);
	gt_line_candidate(&line, &dgx1);
	CHECK(gt_line_end(&line));
	CHECK_TEXT(line.text, "place id=7 hint=a=\"1\"%09b=50%25%7F%0A%C3%A4 "
			      "node=dgx1/8/b6/30/1\n");
	gt_line_free(&line);
}

static void a_long_value_is_cut(void)
{
	gt_line_t line = { 0 };

	gt_line_begin(&line, "place");
	gt_line_text(&line, "hint", "abcdef", 3);
	CHECK(gt_line_end(&line));
	CHECK_TEXT(line.text, "place hint=abc\n");
	gt_line_free(&line);
}

static void a_line_over_one_mebibyte_is_never_sent(void)
{
	gt_line_t line = { 0 };

	gt_line_begin(&line, "place");
	for (int i = 0; i < 200000; i++)
		gt_line_placed(&line, "somenode", 0xff);
	CHECK(!gt_line_end(&line));
	gt_line_begin(&line, "place");
	CHECK(gt_line_end(&line));
	gt_line_free(&line);
}

static void use_gives_nodes_alternatives_and_note(void)
{
	CHECK(!parse("use id=12 node=dgx1/9 node=dgx2/F0 alt=dgx1/3 note=a%20b"));
	CHECK(reply.kind == GT_REPLY_USE && reply.id == 12);
	CHECK(reply.pick_count == 2 && reply.alt_count == 1);
	CHECK_TEXT(reply.picks[1].name, "dgx2");
	CHECK(reply.picks[1].mask == 0xf0 && reply.alts[0].mask == 3);
	CHECK_TEXT(reply.note, "a b");
}

static void wait_and_pass_are_read(void)
{
	CHECK(!parse("wait id=1 s=30 note=later"));
	CHECK(reply.kind == GT_REPLY_WAIT && reply.wait_s == 30);
	CHECK(!parse("pass id=2"));
	CHECK(reply.kind == GT_REPLY_PASS && !reply.note[0]);
	CHECK(!parse("error id=0 message=no%20idea"));
	CHECK(reply.kind == GT_REPLY_ERROR);
}

static void keys_of_a_later_protocol_are_ignored(void)
{
	CHECK(!parse("use id=1 node=a/1 rank.a=0,3 confidence=high"));
}

static void malformed_replies_are_refused(void)
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
		"use id=99999999999999999999 node=a/1", "\x80use id=1 node=a/1",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (!parse(bad[i]) && !failed_at[0])
			snprintf(failed_at, sizeof(failed_at), "accepted: %s",
				 bad[i]);
}

static void too_many_nodes_are_refused(void)
{
	static char text[GT_REPLY_MAX];
	size_t len = (size_t) snprintf(text, sizeof(text), "use id=1");

	while (len + 16 < sizeof(text))
		len += (size_t) snprintf(text + len, sizeof(text) - len,
					 " node=a/1");
	CHECK_TEXT(parse(text), "too many nodes");
}

static void a_note_cannot_break_the_bracket(void)
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

/* ---------------------------------------------------------------- settings */

static bool settings(const char *text, gt_config_t *config, char *wrong)
{
	char copy[4096];

	snprintf(copy, sizeof(copy), "%s", text);
	wrong[0] = '\0';
	return gt_config_parse(config, "select.conf", copy, wrong, 300);
}

static void settings_start_from_the_defaults(void)
{
	gt_config_t config;
	char wrong[300];

	CHECK(settings("", &config, wrong));
	CHECK(config.deadline_ms == 50 && config.pass_budget_ms == 500);
	CHECK(config.max_candidates == 2000 && config.respect_weight);
	CHECK_TEXT(config.socket, "/run/gputopo/engine.sock");
	CHECK_TEXT(config.kill_switch, "/etc/slurm/gputopo.disable");
}

static void settings_are_read(void)
{
	gt_config_t config;
	char wrong[300];

	CHECK(settings("# ours\n\n deadline_ms = 20 \r\nrespect_weight=no\n"
		       "socket=/tmp/x=y.sock", &config, wrong));
	CHECK(config.deadline_ms == 20 && !config.respect_weight);
	CHECK_TEXT(config.socket, "/tmp/x=y.sock");
}

static void a_bad_setting_is_named_and_nothing_of_it_kept(void)
{
	static const char *const bad[][2] = {
		{ "deadline=5", "select.conf line 1: unknown key \"deadline\"" },
		{ "\n\nbreaker_s=0", "select.conf line 3: key \"breaker_s\": "
		  "expected a number from 1 to 3600, read \"0\"" },
		{ "deadline_ms=5ms", "select.conf line 1: key \"deadline_ms\": "
		  "expected a number from 1 to 1000, read \"5ms\"" },
		{ "deadline_ms=", "select.conf line 1: key \"deadline_ms\": "
		  "expected a number from 1 to 1000, read \"\"" },
		{ "deadline_ms=99999999999", "select.conf line 1: key "
		  "\"deadline_ms\": expected a number from 1 to 1000, read "
		  "\"99999999999\"" },
		{ "respect_weight=true", "select.conf line 1: key "
		  "\"respect_weight\": expected yes or no, read \"true\"" },
		{ "socket=engine.sock", "select.conf line 1: key \"socket\": "
		  "expected an absolute path under 108 bytes, read "
		  "\"engine.sock\"" },
		{ "what", "select.conf line 1: expected key=value, read "
		  "\"what\"" },
		{ "deadline_ms=1\ndeadline_ms=2",
		  "select.conf line 2: key \"deadline_ms\" given twice" },
	};
	gt_config_t config;
	char wrong[300];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CHECK(!settings(bad[i][0], &config, wrong));
		CHECK_TEXT(wrong, bad[i][1]);
		CHECK(config.deadline_ms == 50);
	}
}

static void a_missing_file_means_the_defaults(void)
{
	gt_config_t config;
	char wrong[300] = "";

	CHECK(gt_config_load(&config, "/nonexistent/select.conf", wrong, 300));
	CHECK(config.deadline_ms == 50);
	CHECK(!gt_config_load(&config, "/", wrong, 300));
}

/* ----------------------------------------------------------- admin comment */

static void writes(const char *comment, const char *hint, const char *note,
		   const char *expected)
{
	char *text = gt_bracket_write(comment,
				      (gt_slice_t) { hint, strlen(hint) }, note);

	CHECK_TEXT(text, expected);
	free(text);
}

static void the_bracket_is_replaced_and_the_rest_kept(void)
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

static void the_hint_is_found(void)
{
	gt_bracket_t bracket;
	gt_slice_t hint;

	gt_bracket_read("x [gpu-topo:  a=b,c=d  | note ] y", &bracket);
	CHECK(bracket.found && bracket.hint.len == 7 && bracket.note.len == 4);
	CHECK(!strncmp(bracket.hint.text, "a=b,c=d", 7));
	gt_bracket_read("no bracket", &bracket);
	CHECK(!bracket.found && !bracket.hint.len);
	gt_bracket_read(NULL, &bracket);
	CHECK(!bracket.found);
	hint = gt_comment_hint("gpu-topo:  pattern=tree ");
	CHECK(hint.len == 12 && !strncmp(hint.text, "pattern=tree", 12));
	CHECK(!gt_comment_hint("see gpu-topo: x").len);
	CHECK(!gt_comment_hint(NULL).len);
}

static void a_wait_survives_in_the_comment(void)
{
	gt_waiting_t waiting = {
		.count = 3,
		.cap = 10,
		.since = 1700000000,
		.until = 1700000030,
		.begin = 1699999000,
	}, read;
	char note[400];
	gt_bracket_t bracket;
	char *comment;

	gt_waiting_write(note, sizeof(note), &waiting, "a pair (0,3) is busy");
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

static void other_notes_are_no_waits(void)
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
				       &waiting));
	CHECK(gt_waiting_read((gt_slice_t) { "waiting 1/2 since 3: a", 22 },
			      &waiting));
	CHECK(waiting.count == 1 && !waiting.until && !waiting.begin);
	CHECK(waiting.why.len == 1 && waiting.why.text[0] == 'a');
	/* no note of ours is as long */
	memset(long_note + 21, 'a', 491);
	CHECK(gt_waiting_read((gt_slice_t) { long_note, 511 }, &waiting));
	CHECK(waiting.why.len == 490);
	CHECK(!gt_waiting_read((gt_slice_t) { long_note, 512 }, &waiting));
	/* an end that was cut says nothing of when */
	CHECK(gt_waiting_read((gt_slice_t) {
			"waiting 1/2 since 3: a (until 77, be", 36 }, &waiting));
	CHECK(waiting.count == 1 && !waiting.until && !waiting.begin);
	CHECK(waiting.why.len == 15);
}

/* ------------------------------------------------- budget, counters, switch */

static void a_pass_has_one_budget(void)
{
	gt_budget_t budget = { 0 };

	CHECK(gt_budget_left(&budget, 1, 1000, 500, 100000) == 500);
	gt_budget_spend(&budget, 300);
	CHECK(gt_budget_left(&budget, 1, 2000, 500, 100000) == 200);
	gt_budget_spend(&budget, 300);
	CHECK(gt_budget_left(&budget, 1, 3000, 500, 100000) == -100);
	CHECK(gt_budget_left(&budget, 2, 4000, 500, 100000) == 500);
	gt_budget_spend(&budget, 600);
	CHECK(gt_budget_left(&budget, 2, 103999, 500, 100000) == -100);
	CHECK(gt_budget_left(&budget, 2, 104000, 500, 100000) == 500);
}

static void counters_tell_median_and_maximum(void)
{
	static gt_stats_t stats;
	char line[512];

	memset(&stats, 0, sizeof(stats));
	for (int i = 1; i <= 5; i++)
		gt_stats_add(&stats, GT_USED, i * 100);
	gt_stats_add(&stats, GT_BREAKER, 1);
	gt_stats_line(&stats, 0, line, sizeof(line));
	CHECK_TEXT(line, "asked=5 used=5 alt=0 pass=0 wait=0 capped=0 "
			 "infeasible=0 bad_advice=0 timeout=0 down=0 garbage=0 "
			 "breaker=1 budget_out=0 not_ours=0 "
			 "added_us_median=300 added_us_max=500");
	for (int i = 0; i < 3000; i++)
		gt_stats_add(&stats, GT_PASS, 7);
	gt_stats_line(&stats, 0, line, sizeof(line));
	CHECK(strstr(line, "added_us_median=7 added_us_max=500"));
}

static void a_line_is_due_by_count_or_by_time(void)
{
	static gt_stats_t stats;

	memset(&stats, 0, sizeof(stats));
	CHECK(!gt_stats_due(&stats, 2, 1000, 50));
	gt_stats_add(&stats, GT_USED, 1);
	CHECK(!gt_stats_due(&stats, 2, 1000, 100));
	CHECK(gt_stats_due(&stats, 2, 1000, 1100));
	CHECK(!gt_stats_due(&stats, 2, 0, 5000));
	gt_stats_add(&stats, GT_USED, 1);
	CHECK(gt_stats_due(&stats, 2, 0, 100));
	CHECK(!gt_stats_due(&stats, 0, 0, 100));
}

/* A file system that hangs, while `hangs` is set: this stands in for libc's. */
static volatile bool hangs;

int access(const char *path, int mode)
{
	while (hangs)
		usleep(1000);
	return faccessat(AT_FDCWD, path, mode, 0);
}

static bool becomes(gt_kill_switch_t *kill_switch, bool thrown)
{
	for (int ms = 0; ms < 1000; ms++) {
		if (gt_kill_switch_thrown(kill_switch) == thrown)
			return true;
		usleep(1000);
	}
	return false;
}

static void the_kill_switch_is_seen_within_a_second(void)
{
	static gt_kill_switch_t kill_switch;
	char path[] = "/tmp/gt-switch-XXXXXX";
	int fd = mkstemp(path);

	CHECK(fd >= 0);
	gt_kill_switch_watch(&kill_switch, path);
	CHECK(gt_kill_switch_thrown(&kill_switch));
	unlink(path);
	CHECK(becomes(&kill_switch, false));
	CHECK(!symlink("/", path));
	CHECK(becomes(&kill_switch, true));
	gt_kill_switch_watch(&kill_switch, "/tmp/gt-no-such-file");
	CHECK(!gt_kill_switch_thrown(&kill_switch));
	gt_kill_switch_stop(&kill_switch);
	gt_kill_switch_stop(&kill_switch);
	unlink(path);
	close(fd);
}

static void a_file_system_that_hangs_holds_nobody_up(void)
{
	static gt_kill_switch_t kill_switch;

	gt_kill_switch_watch(&kill_switch, "/tmp");
	alarm(20);
	hangs = true;
	usleep(1200000);	/* the thread has looked */
	CHECK(gt_kill_switch_thrown(&kill_switch));
	gt_kill_switch_stop(&kill_switch);
	hangs = false;
	alarm(0);
}

static void mig_profiles_are_recognised(void)
{
	CHECK(gt_is_mig("1g.5gb") && gt_is_mig("a100_3g.20gb"));
	CHECK(gt_is_mig("nvidia_a100-sxm4-40gb_1g.10gb+me"));
	CHECK(!gt_is_mig("a100") && !gt_is_mig("v100-sxm2-16gb"));
	CHECK(!gt_is_mig(NULL) && !gt_is_mig("") && !gt_is_mig("g.5gb"));
}

/* --------------------------------------------------------------------- rpc */

/* What a scripted engine sends for each line it reads; NULL: nothing */
typedef struct {
	int listener;
	const char *answers[4];
	int close_after;	/* answers per connection, 0: never close */
	int delay_ms;
	char path[64];
	pthread_t thread;
	char heard[4096];
} server_t;

static void serve(server_t *server, int fd, int *next)
{
	const char *text;
	char byte;

	for (int n = 1; read(fd, &byte, 1) == 1;) {
		size_t len = strlen(server->heard);

		if (len + 1 < sizeof(server->heard))
			server->heard[len] = byte;
		if (byte != '\n')
			continue;
		usleep((useconds_t) server->delay_ms * 1000);
		text = *next < 4 ? server->answers[*next] : NULL;
		(*next)++;
		if (text && send(fd, text, strlen(text), MSG_NOSIGNAL) < 0)
			break;
		if (n++ == server->close_after)
			break;
	}
	close(fd);
}

static void *run_server(void *arg)
{
	server_t *server = arg;
	int fd, next = 0;

	while ((fd = accept(server->listener, NULL, NULL)) >= 0)
		serve(server, fd, &next);
	return NULL;
}

static void start(server_t *server, gt_config_t *config)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	snprintf(server->path, sizeof(server->path), "/tmp/gt-test-%d.sock",
		 (int) getpid());
	unlink(server->path);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s",
		 server->path);
	server->listener = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(!bind(server->listener, (struct sockaddr *) &address,
		    sizeof(address)));
	CHECK(!listen(server->listener, 4));
	pthread_create(&server->thread, NULL, run_server, server);
	gt_config_defaults(config);
	snprintf(config->socket, sizeof(config->socket), "%s", server->path);
	config->deadline_ms = 300;
}

static void stop(server_t *server)
{
	shutdown(server->listener, SHUT_RDWR);
	close(server->listener);
	pthread_join(server->thread, NULL);
	unlink(server->path);
}

static gt_channel_t channel;

static gt_rpc_t ask(const gt_config_t *config, uint64_t id)
{
	gt_line_t line = { 0 };
	gt_rpc_t rc;

	gt_line_begin(&line, "place");
	gt_line_number(&line, "id", id);
	CHECK(gt_line_end(&line));
	rc = gt_channel_ask(&channel, config, &line, id, 1000000, &reply);
	gt_line_free(&line);
	return rc;
}

static void answers_come_over_one_kept_connection(void)
{
	server_t server = { .answers = { "pass id=1\n", "wait id=2 s=5\n" } };
	gt_config_t config;
	int fd;

	start(&server, &config);
	gt_channel_init(&channel);
	CHECK(ask(&config, 1) == GT_RPC_OK && reply.kind == GT_REPLY_PASS);
	fd = channel.fd;
	CHECK(ask(&config, 2) == GT_RPC_OK && reply.wait_s == 5);
	CHECK(channel.fd == fd);
	gt_channel_close(&channel);
	stop(&server);
}

static void late_answers_are_skipped_by_their_id(void)
{
	server_t server = { .answers = { "pass id=3\nuse id=4 node=a/1\n" } };
	gt_config_t config;

	start(&server, &config);
	gt_channel_init(&channel);
	CHECK(ask(&config, 4) == GT_RPC_OK && reply.kind == GT_REPLY_USE);
	gt_channel_close(&channel);
	stop(&server);
}

static void silence_ends_at_the_deadline_and_opens_the_breaker(void)
{
	server_t server = { .answers = { "use id=1 no" } };
	gt_config_t config;
	int64_t before_us = gt_now_us();

	start(&server, &config);
	config.deadline_ms = 30;
	gt_channel_init(&channel);
	CHECK(ask(&config, 1) == GT_RPC_TIMEOUT);
	CHECK(gt_now_us() - before_us >= 30000);
	CHECK(channel.fd < 0);
	CHECK(ask(&config, 2) == GT_RPC_BREAKER);
	CHECK(gt_channel_should_log(&channel));
	CHECK(!gt_channel_should_log(&channel));
	channel.breaker_until_us = 0;
	server.answers[1] = "pass id=3\n";
	config.deadline_ms = 300;
	CHECK(ask(&config, 3) == GT_RPC_OK && !channel.failing);
	CHECK(gt_channel_should_log(&channel));
	gt_channel_close(&channel);
	stop(&server);
}

static void one_late_answer_of_a_working_engine_is_forgiven(void)
{
	server_t server = { .answers = { "pass id=1\n", "use id=2 no" } };
	gt_config_t config;

	start(&server, &config);
	config.deadline_ms = 300;
	gt_channel_init(&channel);
	CHECK(ask(&config, 1) == GT_RPC_OK);
	config.deadline_ms = 30;
	CHECK(ask(&config, 2) == GT_RPC_TIMEOUT && channel.failing);
	CHECK(ask(&config, 3) == GT_RPC_TIMEOUT);
	CHECK(ask(&config, 4) == GT_RPC_BREAKER);
	gt_channel_close(&channel);
	stop(&server);
}

static void a_stale_connection_is_replaced_within_the_question(void)
{
	server_t server = { .answers = { "pass id=1\n", "pass id=2\n" },
			    .close_after = 1 };
	gt_config_t config;

	start(&server, &config);
	gt_channel_init(&channel);
	CHECK(ask(&config, 1) == GT_RPC_OK);
	usleep(20000);
	CHECK(ask(&config, 2) == GT_RPC_OK && reply.id == 2);
	gt_channel_close(&channel);
	stop(&server);
}

static void nobody_listening_is_told_at_once(void)
{
	gt_config_t config;

	gt_config_defaults(&config);
	snprintf(config.socket, sizeof(config.socket), "/nonexistent/e.sock");
	gt_channel_init(&channel);
	CHECK(ask(&config, 1) == GT_RPC_DOWN);
	CHECK(strstr(channel.wrong, "/nonexistent/e.sock: No such file"));
	CHECK(ask(&config, 2) == GT_RPC_BREAKER);
}

static void garbage_closes_the_connection(void)
{
	server_t server = { .answers = { "what?\n", "use id=2 node=\n",
					 "pass id=9\n" } };
	gt_config_t config;

	start(&server, &config);
	gt_channel_init(&channel);
	for (uint64_t id = 1; id <= 3; id++) {
		CHECK(ask(&config, id) == GT_RPC_GARBAGE);
		CHECK(channel.fd < 0 && channel.wrong[0]);
		channel.breaker_until_us = 0;
	}
	stop(&server);
}

static void notices_never_block(void)
{
	server_t server = { .answers = { NULL }, .delay_ms = 20 };
	gt_config_t config;
	gt_line_t line = { 0 };

	start(&server, &config);
	gt_channel_init(&channel);
	gt_line_begin(&line, "started");
	gt_line_number(&line, "job", 1);
	for (int i = 0; i < 3000; i++)
		gt_line_placed(&line, "dgx1", 0xff);
	CHECK(gt_line_end(&line));
	/* a send that waits for the reader would drop none of them */
	for (int i = 0; i < 100; i++)
		gt_channel_tell(&channel, &config, &line);
	CHECK(channel.notices_dropped > 0);
	gt_line_free(&line);
	gt_channel_close(&channel);
	stop(&server);
}

static void a_notice_is_dropped_only_where_nobody_listens(void)
{
	server_t server = { .answers = { NULL } };
	gt_config_t config;
	gt_line_t line = { 0 };

	start(&server, &config);
	gt_channel_init(&channel);
	gt_line_begin(&line, "started");
	gt_line_number(&line, "job", 1);
	CHECK(gt_line_end(&line));
	gt_channel_tell(&channel, &config, &line);
	gt_channel_tell(&channel, &config, &line);
	CHECK(channel.notices_dropped == 0);
	gt_channel_close(&channel);
	stop(&server);
	strcpy(config.socket, "/nonexistent/engine.sock");
	gt_channel_tell(&channel, &config, &line);
	CHECK(channel.notices_dropped == 1);
	gt_line_free(&line);
	gt_channel_close(&channel);
}

/* ---------------------------------------------------------------- the rest */

#define TEST(name) { #name, name }

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	TEST(a_question_is_one_encoded_line),
	TEST(a_long_value_is_cut),
	TEST(a_line_over_one_mebibyte_is_never_sent),
	TEST(use_gives_nodes_alternatives_and_note),
	TEST(wait_and_pass_are_read),
	TEST(keys_of_a_later_protocol_are_ignored),
	TEST(malformed_replies_are_refused),
	TEST(too_many_nodes_are_refused),
	TEST(a_note_cannot_break_the_bracket),
	TEST(settings_start_from_the_defaults),
	TEST(settings_are_read),
	TEST(a_bad_setting_is_named_and_nothing_of_it_kept),
	TEST(a_missing_file_means_the_defaults),
	TEST(the_bracket_is_replaced_and_the_rest_kept),
	TEST(the_hint_is_found),
	TEST(a_wait_survives_in_the_comment),
	TEST(other_notes_are_no_waits),
	TEST(a_pass_has_one_budget),
	TEST(counters_tell_median_and_maximum),
	TEST(a_line_is_due_by_count_or_by_time),
	TEST(the_kill_switch_is_seen_within_a_second),
	TEST(a_file_system_that_hangs_holds_nobody_up),
	TEST(mig_profiles_are_recognised),
	TEST(answers_come_over_one_kept_connection),
	TEST(late_answers_are_skipped_by_their_id),
	TEST(silence_ends_at_the_deadline_and_opens_the_breaker),
	TEST(one_late_answer_of_a_working_engine_is_forgiven),
	TEST(a_stale_connection_is_replaced_within_the_question),
	TEST(nobody_listening_is_told_at_once),
	TEST(garbage_closes_the_connection),
	TEST(notices_never_block),
	TEST(a_notice_is_dropped_only_where_nobody_listens),
};
#define TESTS (sizeof(tests) / sizeof(tests[0]))

static int run(const char *only)
{
	int failures = 0, found = 0;

	for (size_t i = 0; i < TESTS; i++) {
		if (only && strcmp(only, tests[i].name))
			continue;
		found = 1;
		failed_at[0] = '\0';
		tests[i].run();
		printf("%s %s%s%s\n", failed_at[0] ? "FAILED" : "ok",
		       tests[i].name, failed_at[0] ? ": " : "", failed_at);
		failures += failed_at[0] != '\0';
	}
	return failures || !found;
}

static void print_lines(void)
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
		printf(" note=%s\n", reply.note);
	}
}

/* The hint and the note of each comment on standard input, "-" for none. */
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

static void fuzz(uint64_t seed, uint64_t rounds)
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

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "list"))
		for (size_t i = 0; i < TESTS; i++)
			puts(tests[i].name);
	else if (!strcmp(what, "run") && argc == 3)
		return run(argv[2]);
	else if (!strcmp(what, "lines"))
		print_lines();
	else if (!strcmp(what, "replies"))
		print_replies();
	else if (!strcmp(what, "brackets"))
		print_brackets();
	else if (!strcmp(what, "fuzz") && argc == 4)
		fuzz(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
	else
		return run(NULL);
	return 0;
}
