#include "node_set.h"

#include <string.h>

#define BITS 64
#define RANGE_BYTES 48		/* two 64-bit numbers and two signs, at most */

/* RET the first bit from `from` on that is `wanted`, or that there are `count` words */
static size_t next_bit(const uint64_t *words, size_t count, size_t from,
		       bool wanted)
{
	for (size_t w = from / BITS; w < count; w++) {
		uint64_t word = wanted ? words[w] : ~words[w];

		if (w == from / BITS)
			word &= UINT64_MAX << from % BITS;
		if (word)
			return w * BITS + (size_t) __builtin_ctzll(word);
	}
	return count * BITS;
}

static size_t digits(char *out, size_t value)
{
	char reversed[24];
	size_t n = 0, len;

	do
		reversed[n++] = (char) ('0' + value % 10);
	while (value /= 10);
	len = n;
	while (n)
		*out++ = reversed[--n];
	return len;
}

/* RET how many bytes of `out` the ranges take, 0 if more than `most` */
static size_t write_ranges(char *out, size_t most, const uint64_t *words,
			   size_t count)
{
	size_t len = 0;

	for (size_t last, first = next_bit(words, count, 0, true);
	     first < count * BITS;
	     first = next_bit(words, count, last + 1, true)) {
		if (len)
			out[len++] = ',';
		last = next_bit(words, count, first, false) - 1;
		len += digits(out + len, first);
		if (last > first) {
			out[len++] = '-';
			len += digits(out + len, last);
		}
		if (len > most)
			return 0;
	}
	return len;
}

static unsigned byte_of(const uint64_t *words, size_t n)
{
	return (unsigned) (words[n / 8] >> n % 8 * 8) & 255;
}

static size_t write_base64(char *out, const uint64_t *words, size_t bytes)
{
	static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				       "abcdefghijklmnopqrstuvwxyz"
				       "0123456789+/";
	size_t len = 0;

	out[len++] = '*';
	for (size_t i = 0; i < bytes; i += 3) {
		size_t left = bytes - i;
		unsigned three = byte_of(words, i) << 16;

		if (left > 1)
			three |= byte_of(words, i + 1) << 8;
		if (left > 2)
			three |= byte_of(words, i + 2);
		out[len++] = alphabet[three >> 18];
		out[len++] = alphabet[three >> 12 & 63];
		out[len++] = left > 1 ? alphabet[three >> 6 & 63] : '=';
		out[len++] = left > 2 ? alphabet[three & 63] : '=';
	}
	return len;
}

static size_t bytes_used(const uint64_t *words, size_t count)
{
	size_t bytes = count * 8;

	while (bytes && !byte_of(words, bytes - 1))
		bytes--;
	return bytes;
}

extern void gt_line_set(gt_line_t *line, const char *key, const uint64_t *words,
			size_t count)
{
	size_t bytes = bytes_used(words, count);
	size_t most = (bytes + 2) / 3 * 4 + 1, used;
	char *out;

	gt_line_add(line, " ");
	gt_line_add(line, key);
	gt_line_add(line, "=");
	if (!bytes || !(out = gt_line_room(line, most + RANGE_BYTES)))
		return;
	if (!(used = write_ranges(out, most, words, count)))
		used = write_base64(out, words, bytes);
	gt_line_used(line, used);
}
