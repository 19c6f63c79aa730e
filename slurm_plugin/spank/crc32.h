/* CRC-32 (IEEE 802.3, as zlib's crc32 and gzip have it). Pure: no Slurm header. */
#pragma once

#include <stddef.h>
#include <stdint.h>

extern uint32_t gt_crc32(const char *text, size_t len);
