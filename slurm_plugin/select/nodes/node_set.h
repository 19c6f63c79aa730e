/* A set of nodes as the engine reads it. No Slurm header. */
#pragma once

#include "protocol.h"

/*
 * Adds key=SET, the set bits of `words` (bit i = bit i%64 of word i/64) in the shorter of
 * two forms: ranges, "0-511,600", or "*" and the bytes in base64, without zeros at the end.
 */
extern void gt_line_set(gt_line_t *line, const char *key, const uint64_t *words,
			size_t count);
