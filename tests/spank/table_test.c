#include "table.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../claims.h"
#include "devices.h"

/* Stands in for libc's: it reads in pieces, some of one byte, and is interrupted. */
extern ssize_t read(int fd, void *buffer, size_t count)
{
	static unsigned calls;

	if (++calls % 3 == 0) {
		errno = EINTR;
		return -1;
	}
	if (count > 1000)
		count = calls % 3 == 1 ? 1 : 1000;
	return syscall(SYS_read, fd, buffer, count);
}

CLAIM(the_checksum_is_zlibs)
{
	CHECK(gt_crc32("123456789", 9) == 0xcbf43926);
	CHECK(gt_crc32("", 0) == 0);
}

/* A table of twelve GPUs. */
static const char *const good[] = {
	"gputopo-launch 1", "machine one", "vendor nvidia", "gpus 12",
	"gpu 0 device=0 minor=- numa=- nics=", "gpu 1 device=1 minor=7 numa=1 nics=mlx5_0",
	"gpu 2 device=2 minor=- numa=- nics=", "gpu 3 device=3 minor=- numa=- nics=",
	"gpu 4 device=4 minor=- numa=- nics=", "gpu 5 device=5 minor=- numa=- nics=",
	"gpu 6 device=6 minor=- numa=- nics=", "gpu 7 device=7 minor=- numa=- nics=",
	"gpu 8 device=8 minor=- numa=- nics=", "gpu 9 device=9 minor=- numa=- nics=",
	"gpu 10 device=10 minor=- numa=- nics=", "gpu 11 device=11 minor=- numa=- nics=",
	"numa 0 cpus=0-3 memory_mb=-", "numa 1 cpus=4-7 memory_mb=1000",
	"order ring 0,1,2,3,4,5,6,7,8,9,10,11", "e00 ba9", "order tree 11,10,9,8,7,6,5,4,3,2,1,0",
};
#define LINES (sizeof(good) / sizeof(good[0]))
static char wrong[GT_NOTE];

/* Reads the table with another line at `number`; 0: unchanged. */
static bool read_with(gt_table_t *table, size_t number, const char *line)
{
	char *text = malloc(2048);
	size_t len = 0;

	wrong[0] = '\0';
	for (size_t i = 0; i < LINES; i++)
		len += (size_t) sprintf(text + len, "%s\n", i + 1 == number ? line : good[i]);
	len += (size_t) sprintf(text + len, "end %zu %08x\n", LINES, gt_crc32(text, len));
	return gt_table_parse(table, "one", text, len, wrong);
}

CLAIM(what_was_in_memory_before_is_no_part_of_a_table)
{
	static gt_table_t table;

	memset(&table, 0xa5, sizeof(table));
	CHECK(read_with(&table, 0, ""));
	CHECK_TEXT(wrong, "");
	CHECK(table.gpus == 12 && table.numas == 2 && table.patterns == 2);
	gt_table_free(&table);
}

CLAIM(each_line_of_a_table_is_checked)
{
	static const struct {
		size_t number;
		const char *line;
	} bad[] = {
		{ 2, "machin one" }, { 2, "machine " }, { 3, "vendo nvidia" },
		{ 3, "vendor intel" }, { 4, "gpu 12" }, { 4, "gpus 0" }, { 4, "gpus 12 " },
		{ 4, "gpus 129" }, { 6, "gpu 2 device=1 minor=- numa=- nics=" },
		{ 6, "gpu 1 device=0 minor=- numa=- nics=" },
		{ 6, "gpu 1 device=12 minor=- numa=- nics=" },
		{ 6, "gpu 1 device=- minor=- numa=- nics=" },
		{ 6, "gpu 1 device=1 minor=x numa=- nics=" },
		{ 6, "gpu 1 device=1 minor=- numa=64 nics=" },
		{ 6, "gpu 1 device=1 minor=- numa=-" }, { 18, "numa 0 cpus=4-7 memory_mb=-" },
		{ 18, "numa 64 cpus=4-7 memory_mb=-" }, { 18, "numa 1 cpu=4-7 memory_mb=-" },
		{ 18, "numa 1 cpus=7-4 memory_mb=-" }, { 18, "numa 1 cpus=4-7" },
		{ 18, "numa 1 cpus=4-7 memory_mb=x" }, { 18, "numa 1 cpus=4-7 memory_mb=1 " },
		{ 21, "order ring 11,10,9,8,7,6,5,4,3,2,1,0" }, { 21, "order tree" },
		{ 21, "order  11,10,9,8,7,6,5,4,3,2,1,0" },
		{ 21, "order tree 11,10,9,8,7,6,5,4,3,2,1" },
		{ 21, "order tree 11,10,9,8,7,6,5,4,3,2,1,0,0" },
		{ 21, "order tree 11,10,9,8,7,6,5,4,3,2,1,1" },
		{ 21, "order tree 12,10,9,8,7,6,5,4,3,2,1,0" },
	};
	char expected[GT_NOTE];
	gt_table_t table;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(expected, sizeof(expected), "one line %zu: not what a launch table has"
			 " there; write it again with gputopo launch-table", bad[i].number);
		if (read_with(&table, bad[i].number, bad[i].line))
			snprintf(wrong, sizeof(wrong), "accepted: %s", bad[i].line);
		CHECK_TEXT(wrong, expected);
		gt_table_free(&table);
	}
}

CLAIM(a_row_names_gpus_from_ten_on_by_letters)
{
	gt_list_t three = { .gpu = { 9, 10, 11 }, .count = 3 };
	gt_table_t table;

	CHECK(read_with(&table, 0, "") && gt_order(&table, "ring", &three));
	CHECK(three.count == 3);
	CHECK(three.gpu[0] == 11 && three.gpu[1] == 10 && three.gpu[2] == 9);
	gt_table_free(&table);
}
