/* Slurm's bit maps as words: bit i is bit i%64 of word i/64. */
#pragma once

#include "compat.h"

/* Copies the map; bits beyond its size are 0, and those beyond `count` words left out. */
extern void gt_bits_words(bitstr_t *bits, uint64_t *words, size_t count);
