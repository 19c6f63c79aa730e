#include "mirror.h"

#include <inttypes.h>
#include <stdlib.h>

#include "../claims.h"

#define NODES 1000

/* The nodes as a test has them */
static gt_node_t nodes[NODES];
static char names[NODES][16];
static gt_mirror_t mirror;
static gt_line_t line;

static void look(uint32_t index, gt_node_t *node)
{
	*node = nodes[index];
}

static void begin(uint32_t count)
{
	for (uint32_t i = 0; i < NODES; i++) {
		snprintf(names[i], sizeof(names[i]), "n%u", i);
		nodes[i] = (gt_node_t) { names[i], "a100", 8, 1, 0xff };
	}
	gt_mirror_init(&mirror);
	CHECK(gt_mirror_build(&mirror, count, look, true));
}

static void end(void)
{
	gt_table_free(mirror.table);
	free(mirror.free);
	free(mirror.is_changed);
	gt_line_free(&line);
}

/* A job takes these GPUs, or leaves these free. */
static void set_free(uint32_t index, uint64_t free)
{
	nodes[index].free = free;
	gt_mirror_look(&mirror, index, &nodes[index]);
}

static void tell(void)
{
	gt_copy_t copy;

	CHECK(gt_mirror_copy(&mirror, &copy));
	gt_mirror_sent(&mirror, &copy);
	gt_mirror_give_back(&mirror, &copy);
}

/* RET what a question says changed, "" for nothing */
static const char *changed(void)
{
	const char *at;

	gt_line_begin(&line, "place");
	gt_mirror_write(&mirror, &line);
	at = strstr(line.text, " changed=");
	return at ? at + strlen(" changed=") : "";
}

/* As the design has it, computed by a program of its own */
CLAIM(the_digest_is_that_of_the_design)
{
	begin(3);
	nodes[0].free = 0xff;
	nodes[1].free = 0;
	nodes[2].free = UINT64_MAX;
	CHECK(gt_mirror_build(&mirror, 3, look, false));
	CHECK(mirror.digest == 0xde448e15329108ee);
	set_free(1, 0x3);
	CHECK(mirror.digest == 0x33d28fe4849e26d6);
	set_free(1, 0);
	CHECK(mirror.digest == 0xde448e15329108ee);
	end();
}

CLAIM(a_question_tells_what_changed_until_it_is_answered)
{
	begin(NODES);
	CHECK(!gt_mirror_known(&mirror));
	set_free(5, 0x0f);
	tell();
	CHECK(gt_mirror_known(&mirror));
	CHECK_TEXT(changed(), "");
	set_free(7, 0x3);
	set_free(999, 0);
	set_free(7, 0x1);
	set_free(8, 0xff);
	CHECK_TEXT(changed(), "7:1,999:0");
	CHECK_TEXT(changed(), "7:1,999:0");
	gt_mirror_answered(&mirror, false);
	CHECK_TEXT(changed(), "");
	set_free(7, 0xff);
	CHECK_TEXT(changed(), "7:ff");
	CHECK(gt_mirror_known(&mirror));
	end();
}

CLAIM(what_changes_while_the_table_is_sent_is_told_by_questions)
{
	gt_copy_t copy;

	begin(NODES);
	set_free(3, 0x1);
	CHECK(gt_mirror_copy(&mirror, &copy));
	CHECK(copy.free[3] == 1 && copy.free[4] == 0xff);
	set_free(4, 0x7);
	CHECK(copy.free[4] == 0xff && copy.digest != mirror.digest);
	CHECK(!gt_mirror_known(&mirror));
	gt_mirror_sent(&mirror, &copy);
	gt_mirror_give_back(&mirror, &copy);
	CHECK(gt_mirror_known(&mirror));
	CHECK_TEXT(changed(), "4:7");
	end();
}

CLAIM(too_many_changes_are_a_table_sent_anew)
{
	begin(NODES);
	tell();
	for (uint32_t i = 0; i < GT_CHANGED_MAX; i++)
		set_free(i, 0);
	CHECK(gt_mirror_known(&mirror));
	CHECK(strlen(changed()) < 4096);
	set_free(GT_CHANGED_MAX, 0);
	CHECK(!gt_mirror_known(&mirror));
	tell();
	CHECK(gt_mirror_known(&mirror));
	CHECK_TEXT(changed(), "");
	set_free(0, 0xff);
	CHECK_TEXT(changed(), "0:ff");
	end();
}

CLAIM(a_table_is_new_if_anything_but_free_gpus_differs)
{
	uint64_t number;

	begin(NODES);
	tell();
	number = mirror.table->number;
	CHECK(number);
	nodes[9].free = 1;
	CHECK(gt_mirror_build(&mirror, NODES, look, false));
	CHECK(mirror.table->number == number && gt_mirror_known(&mirror));
	CHECK_TEXT(changed(), "9:1");
	nodes[9].weight = 2;
	CHECK(gt_mirror_build(&mirror, NODES, look, false));
	CHECK(mirror.table->number != number && !gt_mirror_known(&mirror));
	tell();
	number = mirror.table->number;
	CHECK(gt_mirror_build(&mirror, NODES, look, true));
	CHECK(mirror.table->number != number && !gt_mirror_known(&mirror));
	end();
}

static bool is_noticed(gt_node_t node)
{
	bool noticed;

	begin(NODES);
	tell();
	gt_mirror_look(&mirror, 9, &node);
	noticed = !gt_mirror_known(&mirror) && !gt_mirror_count(&mirror);
	end();
	return noticed;
}

CLAIM(a_look_notices_whatever_differs)
{
	CHECK(!is_noticed((gt_node_t) { "n9", "a100", 8, 1, 0x3 }));
	CHECK(is_noticed((gt_node_t) { "m9", "a100", 8, 1, 0xff }));
	CHECK(is_noticed((gt_node_t) { "n9", "h100", 8, 1, 0xff }));
	CHECK(is_noticed((gt_node_t) { "n9", NULL, 8, 1, 0xff }));
	CHECK(is_noticed((gt_node_t) { "n9", "a100", 4, 1, 0xf }));
	CHECK(is_noticed((gt_node_t) { "n9", "a100", 8, 3, 0xff }));
	begin(4);
	gt_mirror_look(&mirror, 4, &nodes[4]);
	CHECK(!gt_mirror_count(&mirror));
	end();
}

CLAIM(a_stale_mirror_is_not_sent)
{
	gt_copy_t copy;

	begin(NODES);
	gt_mirror_forget(&mirror);
	CHECK(!gt_mirror_copy(&mirror, &copy) && !gt_mirror_known(&mirror));
	/* what changed meanwhile is seen when it is built */
	nodes[1].free = 0;
	CHECK(gt_mirror_build(&mirror, NODES, look, false));
	CHECK(gt_mirror_copy(&mirror, &copy) && copy.free[1] == 0);
	gt_mirror_give_back(&mirror, &copy);
	end();
}

CLAIM(an_engine_that_lost_the_table_gets_it_again)
{
	gt_copy_t copy;

	begin(NODES);
	tell();
	CHECK(!gt_mirror_copy(&mirror, &copy));
	gt_mirror_answered(&mirror, true);
	CHECK(!gt_mirror_known(&mirror));
	tell();
	gt_mirror_lost(&mirror);
	CHECK(!gt_mirror_known(&mirror));
	CHECK(gt_mirror_copy(&mirror, &copy));
	/* while it was sent, the engine was started again: it does not have it */
	gt_mirror_lost(&mirror);
	gt_mirror_sent(&mirror, &copy);
	CHECK(!gt_mirror_known(&mirror));
	/* a copy outlives its table */
	CHECK(gt_mirror_build(&mirror, NODES, look, true));
	CHECK_TEXT(copy.table->rows[999].name, "n999");
	gt_mirror_give_back(&mirror, &copy);
	end();
}

/* ----------------------------------------------------- any order of events */

static uint64_t chance_state;

static uint32_t chance(uint32_t below)
{
	chance_state = chance_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t) (chance_state >> 33) % below;
}

/* The engine: one table, and what it was told since */
static uint64_t told_number, told[NODES];

static void send_some_of_it(void)
{
	gt_copy_t copy;

	if (!gt_mirror_copy(&mirror, &copy))
		return;
	for (int i = 0; i < 3; i++)
		set_free(chance(NODES), chance(256));
	if (chance(4)) {
		memcpy(told, copy.free, copy.table->count * sizeof(*told));
		told_number = copy.table->number;
		gt_mirror_sent(&mirror, &copy);
	} else {
		gt_mirror_lost(&mirror);
	}
	gt_mirror_give_back(&mirror, &copy);
}

static void take_changes(const char *text)
{
	while (*text) {
		char *next;
		uint32_t index = (uint32_t) strtoul(text, &next, 10);

		CHECK(*next == ':' && index < NODES);
		told[index % NODES] = strtoull(next + 1, &next, 16);
		text = next + (*next == ',');
	}
}

/* A question, with or without an answer: the engine knows every node's free GPUs. */
static void ask_about_it(void)
{
	if (!gt_mirror_known(&mirror))
		return;
	CHECK(told_number == mirror.table->number);
	if (chance(4)) {
		take_changes(changed());
		CHECK(!memcmp(told, mirror.free,
			      mirror.table->count * sizeof(*told)));
		if (chance(4))
			gt_mirror_answered(&mirror, !chance(20));
	}
}

static void something_happens(void)
{
	uint32_t index = chance(NODES);

	switch (chance(200)) {
	case 0:
		nodes[index].weight = chance(3);
		gt_mirror_look(&mirror, index, &nodes[index]);
		break;
	case 1:
		gt_mirror_forget(&mirror);
		nodes[index].free = 0;
		break;
	case 2:
		gt_mirror_lost(&mirror);
		break;
	case 3:
		for (uint32_t i = 0; i < NODES / 2 + chance(NODES / 2); i++)
			set_free(i, chance(256));
		break;
	case 4 ... 19:
		CHECK(gt_mirror_build(&mirror, NODES, look, !chance(8)));
		break;
	case 20 ... 49:
		send_some_of_it();
		break;
	case 50 ... 99:
		ask_about_it();
		break;
	default:
		set_free(index, chance(256));
	}
}

CLAIM(in_any_order_of_events_the_engine_knows_what_is_free)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		chance_state = seed;
		begin(NODES);
		for (int i = 0; i < 2000; i++)
			something_happens();
		end();
	}
}
