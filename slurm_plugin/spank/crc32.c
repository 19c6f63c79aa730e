#include "crc32.h"

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
