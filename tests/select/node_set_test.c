#include "node_set.h"

#include <stdlib.h>

#include "../claims.h"

#define WORDS 391		/* 25,000 nodes */
#define LIMIT (WORDS * 64)

static gt_line_t line;

static const char *written(const uint64_t *words, size_t count)
{
	gt_line_begin(&line, "place");
	gt_line_set(&line, "others", words, count);
	return line.text + strlen("place others=");
}

static void set(uint64_t *words, size_t first, size_t last)
{
	for (size_t i = first; i <= last; i++)
		words[i / 64] |= 1ULL << i % 64;
}

/* What the engine makes of it, in C */
static bool read_ranges(const char *text, uint64_t *words)
{
	while (*text) {
		char *end;
		size_t first = strtoul(text, &end, 10), last = first;

		if (end == text)
			return false;
		if (*end == '-')
			last = strtoul(text = end + 1, &end, 10);
		if (last < first || last >= LIMIT)
			return false;
		set(words, first, last);
		text = end + (*end == ',');
	}
	return true;
}

static bool read_base64(const char *text, uint64_t *words)
{
	static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				       "abcdefghijklmnopqrstuvwxyz"
				       "0123456789+/";
	unsigned bits = 0, held = 0;
	size_t n = 0;

	for (; *text && *text != '='; text++) {
		const char *at = strchr(alphabet, *text);

		if (!at)
			return false;
		bits = bits << 6 | (unsigned) (at - alphabet);
		if ((held += 6) < 8)
			continue;
		held -= 8;
		if (n >= WORDS * 8)
			return false;
		words[n / 8] |= (uint64_t) (bits >> held & 255) << n % 8 * 8;
		n++;
	}
	return strspn(text, "=") == strlen(text);
}

static size_t base64_length(const uint64_t *words, size_t count)
{
	size_t bytes = count * 8;

	while (bytes && !(words[(bytes - 1) / 8] >> (bytes - 1) % 8 * 8 & 255))
		bytes--;
	return 1 + (bytes + 2) / 3 * 4;
}

/* RET true if what is written means the set, and is no longer than in base64 */
static bool comes_back(const uint64_t *words, size_t count)
{
	const char *text = written(words, count);
	uint64_t read[WORDS] = { 0 };

	if (strlen(text) > base64_length(words, count))
		return false;
	if (!(*text == '*' ? read_base64(text + 1, read) :
			     read_ranges(text, read)))
		return false;
	return !memcmp(words, read, count * sizeof(*words));
}

CLAIM(ranges_are_written_where_they_are_shorter)
{
	uint64_t words[WORDS] = { 0 };

	set(words, 0, 511);
	set(words, 600, 600);
	set(words, 700, 12499);
	CHECK_TEXT(written(words, WORDS), "0-511,600,700-12499");
	memset(words, 255, sizeof(words));
	CHECK_TEXT(written(words, WORDS), "0-25023");
	memset(words, 0, sizeof(words));
	CHECK_TEXT(written(words, WORDS), "");
	set(words, 63, 64);
	CHECK_TEXT(written(words, 2), "63-64");
}

CLAIM(a_scattered_set_is_base64_without_zeros_at_the_end)
{
	uint64_t words[WORDS] = { 0 };

	for (size_t i = 0; i < 64; i += 2)
		set(words, i, i);
	CHECK_TEXT(written(words, WORDS), "*VVVVVVVVVVU=");
	for (size_t i = 0; i < 12500; i += 2)
		set(words, i, i);
	/* 12,499 bits are 1,563 bytes */
	CHECK(strlen(written(words, WORDS)) == 1 + 1563 / 3 * 4);
}

CLAIM(every_set_comes_back)
{
	uint64_t words[WORDS], chance = 1;

	CHECK(sizeof(words) * 8 == LIMIT);
	for (int round = 0; round < 400; round++) {
		/* from nearly none to nearly all, of any length */
		uint64_t density = (uint64_t) round % 20 + 1;
		size_t nodes = (size_t) round * 61 % LIMIT + 1;

		memset(words, 0, sizeof(words));
		for (size_t i = 0; i < nodes; i++) {
			chance = chance * 6364136223846793005u + 1442695040888963407u;
			if ((chance >> 33) % 21 < density)
				set(words, i, i);
		}
		CHECK(comes_back(words, (nodes + 63) / 64));
	}
	gt_line_free(&line);
}
