#include "table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VERSION "gputopo-launch 1"

extern uint32_t gt_crc32(const char *text, size_t len)
{
	uint32_t step[256], crc = 0xffffffff;

	for (uint32_t byte = 0; byte < 256; byte++) {
		step[byte] = byte;
		for (int bit = 0; bit < 8; bit++)
			step[byte] = step[byte] >> 1 ^ (step[byte] & 1 ? 0xedb88320 : 0);
	}
	for (size_t i = 0; i < len; i++)
		crc = crc >> 8 ^ step[(crc ^ (unsigned char) text[i]) & 0xff];
	return ~crc;
}

/* The table and the line that is read next. Lines end in NUL instead of LF. */
typedef struct {
	gt_table_t *table;
	char *line, *line_end, *end;
	unsigned long number;
} reader_t;

/* Goes by the line's end, not its NUL: reading a line may cut it into words. */
static bool next(reader_t *r)
{
	r->line = r->line_end + 1;
	r->number++;
	if (r->line >= r->end)
		return false;
	r->line_end = r->line + strlen(r->line);
	return true;
}

/* Moves *at behind the expected word. RET false when something else is there */
static bool word(const char **at, const char *expected)
{
	size_t len = strlen(expected);

	if (strncmp(*at, expected, len))
		return false;
	*at += len;
	return true;
}

/* Cuts the text at *at off the line at the next blank, and moves *at behind that. */
static bool cut(reader_t *r, const char **at, const char **text)
{
	char *blank = r->line + (*at - r->line) + strcspn(*at, " ");

	if (!*blank)
		return false;
	*blank = '\0';
	*text = *at;
	*at = blank + 1;
	return true;
}

static bool number(const char **at, unsigned long most, int *value)
{
	unsigned long found;

	if (!gt_number(at, most, &found))
		return false;
	*value = (int) found;
	return true;
}

/* Reads a number, or "-" for one that is not known. */
static bool known(const char **at, unsigned long most, int *value)
{
	if (**at == '-') {
		++*at;
		*value = GT_UNKNOWN;
		return true;
	}
	return number(at, most, value);
}

/* Reads the lines machine, vendor and gpus. */
static bool read_machine(reader_t *r)
{
	const char *at = r->line;

	if (!word(&at, "machine ") || !at[0] || strlen(at) >= GT_NAME)
		return false;
	r->table->machine = at;
	if (!next(r))
		return false;
	at = r->line;
	if (!word(&at, "vendor "))
		return false;
	r->table->amd = !strcmp(at, "amd");
	if (!r->table->amd && strcmp(at, "nvidia"))
		return false;
	if (!next(r))
		return false;
	at = r->line;
	return word(&at, "gpus ") && number(&at, GT_GPUS, &r->table->gpus) &&
		r->table->gpus > 0 && !*at;
}

static bool read_gpu(const char *at, int index, gt_gpu_t *gpu)
{
	int same;

	if (!word(&at, "gpu ") || !number(&at, GT_GPUS, &same) || same != index)
		return false;
	if (!word(&at, " device=") || !number(&at, GT_GPUS - 1, &gpu->device))
		return false;
	if (!word(&at, " minor=") || !known(&at, 1 << 20, &gpu->minor))
		return false;
	if (!word(&at, " numa=") || !known(&at, GT_NUMA - 1, &gpu->numa))
		return false;
	if (!word(&at, " nics=") || strlen(at) >= GT_TEXT / 4)
		return false;
	gpu->nics = at;
	return true;
}

/* Reads the lines of all GPUs; no two may have one device number. */
static bool read_gpus(reader_t *r)
{
	bool seen[GT_GPUS] = { false };

	for (int i = 0; i < r->table->gpus; i++) {
		gt_gpu_t *gpu = &r->table->gpu[i];

		if (!next(r) || !read_gpu(r->line, i, gpu))
			return false;
		if (gpu->device >= r->table->gpus || seen[gpu->device])
			return false;
		seen[gpu->device] = true;
	}
	return next(r);
}

/* Reads `numa N cpus=LIST memory_mb=N`. */
static bool read_numa(reader_t *r)
{
	gt_numa_t *numa = &r->table->numa[r->table->numas];
	const char *at = r->line;
	gt_cpuset_t cpus;
	int memory_mb;

	if (r->table->numas == GT_NUMA || !word(&at, "numa ") ||
	    !number(&at, GT_NUMA - 1, &numa->number) || !word(&at, " cpus="))
		return false;
	if (gt_table_numa(r->table, numa->number))
		return false;
	if (!cut(r, &at, &numa->cpus))
		return false;
	if (*numa->cpus && !gt_cpuset_parse(&cpus, numa->cpus))
		return false;
	if (!word(&at, "memory_mb=") || !known(&at, INT32_MAX, &memory_mb) || *at)
		return false;
	numa->memory_mb = memory_mb;
	r->table->numas++;
	return true;
}

/* Reads `order NAME G,G,...` with each GPU once. */
static bool read_order(reader_t *r, gt_pattern_t *pattern)
{
	bool seen[GT_GPUS] = { false };
	const char *at = r->line;

	if (!word(&at, "order ") || !cut(r, &at, &pattern->name))
		return false;
	if (!*pattern->name || strlen(pattern->name) >= GT_NAME ||
	    gt_table_pattern(r->table, pattern->name))
		return false;
	for (int i = 0; i < r->table->gpus; i++) {
		int gpu;

		if ((i && *at++ != ',') || !number(&at, GT_GPUS - 1, &gpu))
			return false;
		if (gpu >= r->table->gpus || seen[gpu])
			return false;
		seen[gpu] = true;
		pattern->order[i] = gpu;
	}
	return !*at;
}

/* Reads a pattern and finds its rows; each row is checked when it is used. */
static bool read_pattern(reader_t *r)
{
	gt_pattern_t *pattern = &r->table->pattern[r->table->patterns];
	bool more;

	if (r->table->patterns == GT_PATTERNS || !read_order(r, pattern))
		return false;
	more = next(r);
	pattern->rows = r->line;
	while (more && strncmp(r->line, "order ", 6))
		more = next(r);
	pattern->rows_end = r->line;
	r->table->patterns++;
	return true;
}

static bool read_lines(reader_t *r)
{
	if (strcmp(r->line, VERSION) || !next(r))
		return false;
	if (!read_machine(r) || !read_gpus(r))
		return false;
	for (; r->line < r->end && !strncmp(r->line, "numa ", 5); next(r))
		if (!read_numa(r))
			return false;
	while (r->line < r->end)
		if (!read_pattern(r))
			return false;
	return r->table->patterns > 0;
}

/*
 * Checks the last line, `end LINES CRC32`, against the others, so that a table that was cut
 * or half copied is not used. RET where the last line begins, or NULL
 */
static char *checked_end(char *text, size_t len)
{
	unsigned long lines = 0, stated;
	unsigned crc;
	char *last;
	const char *at;

	if (len < 2 || text[len - 1] != '\n')
		return NULL;
	text[len - 1] = '\0';
	last = strrchr(text, '\n');
	text[len - 1] = '\n';
	if (!last++)
		return NULL;
	for (char *c = text; (c = memchr(c, '\n', (size_t) (last - c))); c++)
		lines++;
	at = last;
	if (!word(&at, "end ") || !gt_number(&at, 1ul << 30, &stated) || stated != lines)
		return NULL;
	if (sscanf(at, " %8x", &crc) != 1 || crc != gt_crc32(text, (size_t) (last - text)))
		return NULL;
	return last;
}

extern bool gt_table_parse(gt_table_t *table, const char *name, char *text, size_t len,
			   char *wrong)
{
	reader_t r = { .table = table, .line = text, .number = 1 };

	memset(table, 0, sizeof(*table));
	table->text = text;
	if (strncmp(text, VERSION "\n", sizeof(VERSION))) {
		snprintf(wrong, GT_NOTE, "%.120s: is no launch table of version 1; write it"
			 " with gputopo launch-table", name);
	} else if (memchr(text, '\0', len) || !(r.end = checked_end(text, len))) {
		snprintf(wrong, GT_NOTE, "%.120s: is cut or damaged (its last line does not"
			 " fit the rest); write it again with gputopo launch-table", name);
	} else {
		for (char *c = text; c < r.end; c++)
			if (*c == '\n')
				*c = '\0';
		r.line_end = text + strlen(text);
		if (read_lines(&r))
			return true;
		snprintf(wrong, GT_NOTE, "%.120s line %lu: not what a launch table has there;"
			 " write it again with gputopo launch-table", name, r.number);
	}
	gt_table_free(table);
	return false;
}

/* Reads until the end: one read() may bring less, above all from a network's file system. */
static ssize_t read_all(int fd, char *text, size_t size)
{
	size_t at = 0;
	ssize_t got = 1;

	while (at < size && got) {
		got = read(fd, text + at, size - at);
		if (got < 0 && errno != EINTR)
			return -1;
		if (got > 0)
			at += (size_t) got;
	}
	return (ssize_t) at;
}

/* RET the whole file, malloced with a NUL behind it, or NULL with errno */
static char *read_whole(const char *path, size_t *len)
{
	struct stat stat;
	char *text = NULL;
	ssize_t got = -1;
	/* Not blocking: a FIFO of that name must not hold a launch. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return NULL;
	errno = 0;
	if (!fstat(fd, &stat)) {
		if (!S_ISREG(stat.st_mode) || stat.st_size > GT_TABLE_BYTES)
			errno = S_ISREG(stat.st_mode) ? EFBIG : EINVAL;
		else if ((text = malloc((size_t) stat.st_size + 1)))
			got = read_all(fd, text, (size_t) stat.st_size);
	}
	if (got < 0) {
		int why = errno;

		free(text);
		close(fd);
		errno = why;
		return NULL;
	}
	close(fd);
	text[got] = '\0';
	*len = (size_t) got;
	return text;
}

extern bool gt_table_load(gt_table_t *table, const char *path, char *wrong)
{
	size_t len = 0;
	char *text = read_whole(path, &len);

	if (!text) {
		memset(table, 0, sizeof(*table));
		snprintf(wrong, GT_NOTE, "%.120s: %s; expected a table that gputopo"
			 " launch-table wrote", path, strerror(errno));
		return false;
	}
	return gt_table_parse(table, path, text, len, wrong);
}

extern void gt_table_free(gt_table_t *table)
{
	free(table->text);
	memset(table, 0, sizeof(*table));
}

extern const gt_pattern_t *gt_table_pattern(const gt_table_t *table, const char *name)
{
	for (int i = 0; i < table->patterns; i++)
		if (!strcmp(table->pattern[i].name, name))
			return &table->pattern[i];
	return NULL;
}

extern const gt_numa_t *gt_table_numa(const gt_table_t *table, int number)
{
	for (int i = 0; i < table->numas; i++)
		if (table->numa[i].number == number)
			return &table->numa[i];
	return NULL;
}
