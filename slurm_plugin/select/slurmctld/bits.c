#include "bits.h"

#define HEADER_WORDS 2

/* Slurm keeps words, too, behind a header that only its own functions know: is it so here? */
static bool has_words(void)
{
	static enum { UNCHECKED, YES, NO } known;

	if (known == UNCHECKED) {
		bitstr_t *bits = bit_alloc(130);

		bit_set(bits, 0);
		bit_set(bits, 65);
		bit_set(bits, 129);
		known = bits[HEADER_WORDS] == 1 &&
			bits[HEADER_WORDS + 1] == 2 &&
			bits[HEADER_WORDS + 2] == 2 ? YES : NO;
		FREE_NULL_BITMAP(bits);
	}
	return known == YES;
}

extern void gt_bits_words(bitstr_t *bits, uint64_t *words, size_t count)
{
	size_t size = bits ? (size_t) bit_size(bits) : 0;
	size_t whole = size / 64 < count ? size / 64 : count;

	_Static_assert(sizeof(bitstr_t) == sizeof(uint64_t), "words");
	memset(words, 0, count * sizeof(*words));
	if (bits && has_words())
		memcpy(words, bits + HEADER_WORDS, whole * sizeof(*words));
	else
		whole = 0;
	for (size_t i = whole * 64; i < size && i < count * 64; i++)
		if (bit_test(bits, i))
			words[i / 64] |= 1ULL << i % 64;
}
