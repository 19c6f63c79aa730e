#include "table.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../claims.h"
#include "crc32.h"

/* Every table is read through this: in pieces, of one byte even, and interrupted. */
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

static void the_checksum_is_zlibs(void)
{
	CHECK(gt_crc32("123456789", 9) == 0xcbf43926);
	CHECK(gt_crc32("", 0) == 0);
}

static void what_was_in_memory_before_is_no_part_of_a_table(void)
{
	static const char body[] = "gputopo-launch 1\nmachine one\nvendor nvidia\ngpus 1\n"
		"gpu 0 device=0 minor=- numa=- nics=\nnuma 1 cpus=0-3 memory_mb=-\norder ring 0\n";
	static gt_table_t table;
	char *text = malloc(sizeof(body) + 20), wrong[GT_NOTE] = "";
	int len = sprintf(text, "%send 7 %08x\n", body, gt_crc32(body, strlen(body)));

	memset(&table, 0xa5, sizeof(table));
	CHECK(gt_table_parse(&table, "one", text, (size_t) len, wrong));
	CHECK_TEXT(wrong, "");
	CHECK(table.gpus == 1 && table.numas == 1 && table.patterns == 1);
	gt_table_free(&table);
}

const claim_t table_claims[] = {
	TEST(the_checksum_is_zlibs),
	TEST(what_was_in_memory_before_is_no_part_of_a_table),
	{ NULL, NULL },
};
