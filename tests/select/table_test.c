#include "table.h"

#include <stdlib.h>

#include "../claims.h"

static gt_line_t line;
static char name[2000];

static gt_table_t *table_of(const gt_node_t *nodes, uint32_t count)
{
	gt_table_t *table = gt_table_new(count);

	for (uint32_t i = 0; i < count; i++)
		CHECK(gt_table_fill(table, i, &nodes[i]));
	table->number = 0xabc;
	return table;
}

static const char *written(const gt_table_t *table, const uint64_t *free,
			   gt_part_t part)
{
	gt_table_line(&line, table, free, &part);
	CHECK(gt_line_end(&line));
	return line.text;
}

CLAIM(what_all_nodes_share_is_written_once)
{
	static const uint64_t free[] = { 0xff, 0, 0x3 };
	gt_node_t nodes[] = {
		{ "dgx1", "a100", 8, 1, 0 },
		{ "dgx%2", "a100", 8, 1, 0 },
		{ "dgx3", "a100", 8, 1, 0 },
	};
	gt_table_t *table = table_of(nodes, 3);

	CHECK_TEXT(written(table, free, (gt_part_t) { 7, 1, 1, 0, 3 }),
		   "nodes id=7 table=abc part=1 parts=1 first=0 hears=1 "
		   "names=dgx1,dgx%252,dgx3 total=8 free=ff,0,3 weight=1 "
		   "type=a100\n");
	gt_table_free(table);
	nodes[0].type = NULL;
	nodes[1].total = 0;
	nodes[2].weight = 4294967295u;
	table = table_of(nodes, 3);
	CHECK_TEXT(written(table, free, (gt_part_t) { 7, 1, 2, 0, 3 }),
		   "nodes id=7 table=abc part=1 parts=2 first=0 hears=1 "
		   "names=dgx1,dgx%252,dgx3 total=8,0,8 free=ff,0,3 "
		   "weight=1,1,4294967295 type=,a100,a100\n");
	CHECK_TEXT(written(table, free, (gt_part_t) { 8, 2, 2, 2, 1 }),
		   "nodes id=8 table=abc part=2 parts=2 first=2 hears=1 names=dgx3 "
		   "total=8 free=3 weight=4294967295 type=a100\n");
	CHECK_TEXT(written(table, free, (gt_part_t) { 9, 1, 3, 0, 1 }),
		   "nodes id=9 table=abc part=1 parts=3 first=0 hears=1 names=dgx1 "
		   "total=8 free=ff weight=1 type=\n");
	gt_table_free(table);
	gt_line_free(&line);
}

/* RET in how many lines so many nodes with this name are told */
static uint32_t lines_of(uint32_t count, size_t longest)
{
	gt_table_t *table = gt_table_new(count);
	uint64_t *free_gpus = calloc(count, sizeof(*free_gpus));
	uint32_t parts = 0, told = 0;

	memset(name, '%', sizeof(name));
	name[longest] = '\0';
	for (uint32_t i = 0; i < count; i++) {
		gt_node_t node = { name, i % 2 ? "a" : "b", 64, i, 0 };

		CHECK(gt_table_fill(table, i, &node));
		free_gpus[i] = UINT64_MAX;
	}
	while (told < count) {
		gt_part_t part = { .first = told, .part = ++parts };

		part.count = gt_table_rows_of_line(table, told);
		CHECK(part.count > 0 && part.count <= 4096);
		written(table, free_gpus, part);
		told += part.count;
	}
	CHECK(gt_table_parts(table) == parts);
	free(free_gpus);
	gt_table_free(table);
	gt_line_free(&line);
	return parts;
}

CLAIM(no_line_of_the_table_is_too_long)
{
	CHECK(lines_of(12500, 8) == 4);
	CHECK(lines_of(4096, 8) == 1 && lines_of(4097, 8) == 2);
	CHECK(lines_of(4096, 64) == 1);
	/* a name that is cut at 1,024 bytes, each of three on the wire */
	CHECK(lines_of(4096, 1999) > 12);
}

CLAIM(no_table_has_the_number_of_another)
{
	gt_table_t *a = gt_table_new(1), *b = gt_table_new(1);

	CHECK(a->number && b->number && a->number != b->number);
	gt_table_free(a);
	gt_table_free(b);
}
