#define _GNU_SOURCE
#include "table.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define ROWS_MAX 4096		/* of a line */
#define BYTES_MAX (GT_LINE_MAX - 4096)
/* GPUs, weight and free GPUs of one node, with their commas */
#define NUMBERS_BYTES 48

static uint64_t random_number(void)
{
	static uint32_t without;
	uint64_t number = 0;

	if (getrandom(&number, sizeof(number), GRND_NONBLOCK) !=
	    sizeof(number) || !number)
		number = (uint64_t) time(NULL) << 20 | ++without;
	return number;
}

extern gt_table_t *gt_table_new(uint32_t count)
{
	gt_table_t *table = calloc(1, sizeof(*table) +
				   (size_t) count * sizeof(gt_row_t));

	if (!table)
		return NULL;
	table->number = random_number();
	table->count = count;
	table->references = 1;
	return table;
}

static const char *type_of(const gt_node_t *node)
{
	return node->type ? node->type : "";
}

extern bool gt_table_fill(gt_table_t *table, uint32_t index,
			  const gt_node_t *node)
{
	gt_row_t *row = &table->rows[index];
	char *before = index ? row[-1].type : NULL;

	row->total = node->total;
	row->weight = node->weight;
	row->name = strdup(node->name);
	row->type = before && !strcmp(before, type_of(node)) ?
		    before : strdup(type_of(node));
	return row->name && row->type;
}

extern bool gt_table_shows(const gt_table_t *table, uint32_t index,
			   const gt_node_t *node)
{
	const gt_row_t *row = &table->rows[index];

	return row->total == node->total && row->weight == node->weight &&
	       !strcmp(row->name, node->name) &&
	       !strcmp(row->type, type_of(node));
}

extern bool gt_table_equal(const gt_table_t *a, const gt_table_t *b)
{
	if (a->count != b->count)
		return false;
	for (uint32_t i = 0; i < a->count; i++) {
		const gt_row_t *row = &b->rows[i];
		gt_node_t node = { row->name, row->type, row->total,
				   row->weight, 0 };

		if (!gt_table_shows(a, i, &node))
			return false;
	}
	return true;
}

extern void gt_table_free(gt_table_t *table)
{
	for (uint32_t i = table->count; i-- > 0;) {
		gt_row_t *row = &table->rows[i];

		free(row->name);
		if (!i || row[-1].type != row->type)
			free(row->type);
	}
	free(table);
}

/* ------------------------------------------------------------------ lines */

/* A byte of a name may take three. */
static size_t bytes_of(const gt_row_t *row)
{
	return 3 * (strnlen(row->name, GT_NAME_MAX) +
		    strnlen(row->type, GT_NAME_MAX)) + NUMBERS_BYTES;
}

extern uint32_t gt_table_rows_of_line(const gt_table_t *table, uint32_t first)
{
	uint32_t left = table->count - first;
	size_t bytes = 0;

	if (left > ROWS_MAX)
		left = ROWS_MAX;
	for (uint32_t i = 0; i < left; i++) {
		bytes += bytes_of(&table->rows[first + i]);
		if (bytes > BYTES_MAX)
			return i;
	}
	return left;
}

extern uint32_t gt_table_parts(const gt_table_t *table)
{
	uint32_t parts = 0;

	for (uint32_t first = 0; first < table->count; parts++)
		first += gt_table_rows_of_line(table, first);
	return parts;
}

typedef void (*write_t)(gt_line_t *line, const gt_row_t *row);

static void write_name(gt_line_t *line, const gt_row_t *row)
{
	gt_line_add_text(line, row->name, GT_NAME_MAX);
}

static void write_total(gt_line_t *line, const gt_row_t *row)
{
	gt_line_add_decimal(line, row->total);
}

static void write_weight(gt_line_t *line, const gt_row_t *row)
{
	gt_line_add_decimal(line, row->weight);
}

static void write_type(gt_line_t *line, const gt_row_t *row)
{
	gt_line_add_text(line, row->type, GT_NAME_MAX);
}

static void write_list(gt_line_t *line, const char *key, const gt_row_t *rows,
		       uint32_t count, write_t write)
{
	gt_line_add(line, key);
	for (uint32_t i = 0; i < count; i++) {
		if (i)
			gt_line_add(line, ",");
		write(line, &rows[i]);
	}
}

extern void gt_table_line(gt_line_t *line, const gt_table_t *table,
			  const uint64_t *free, const gt_part_t *part)
{
	const gt_row_t *rows = table->rows + part->first;
	bool one_total = true, one_weight = true, one_type = true;

	for (uint32_t i = 1; i < part->count; i++) {
		one_total &= rows[i].total == rows->total;
		one_weight &= rows[i].weight == rows->weight;
		one_type &= !strcmp(rows[i].type, rows->type);
	}
	gt_line_begin(line, "nodes");
	gt_line_number(line, "id", part->id);
	gt_line_hex(line, "table", table->number);
	gt_line_number(line, "part", part->part);
	gt_line_number(line, "parts", part->parts);
	gt_line_number(line, "first", part->first);
	gt_line_number(line, "hears", 1);
	write_list(line, " names=", rows, part->count, write_name);
	write_list(line, " total=", rows, one_total ? 1 : part->count,
		   write_total);
	gt_line_add(line, " free=");
	for (uint32_t i = 0; i < part->count; i++) {
		if (i)
			gt_line_add(line, ",");
		gt_line_add_hex(line, free[part->first + i]);
	}
	write_list(line, " weight=", rows, one_weight ? 1 : part->count,
		   write_weight);
	write_list(line, " type=", rows, one_type ? 1 : part->count,
		   write_type);
}
