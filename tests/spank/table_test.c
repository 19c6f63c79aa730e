#include "table.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../claims.h"
#include "crc32.h"

/* Every table is read through this: in pieces, and interrupted, as a read may be. */
extern ssize_t read(int fd, void *buffer, size_t count)
{
	static unsigned calls;

	if (++calls % 3 == 0) {
		errno = EINTR;
		return -1;
	}
	return syscall(SYS_read, fd, buffer, count < 1000 ? count : 1000);
}

static void the_checksum_is_zlibs(void)
{
	CHECK(gt_crc32("123456789", 9) == 0xcbf43926);
	CHECK(gt_crc32("", 0) == 0);
}

const claim_t table_claims[] = {
	TEST(the_checksum_is_zlibs),
	{ NULL, NULL },
};
