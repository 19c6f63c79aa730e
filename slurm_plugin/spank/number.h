/* Reads one number; strtoul would take blanks and signs. Pure: no Slurm header. */
#pragma once

#include <stdbool.h>

/* Decimal digits at *text, at most `most`. RET false, *text unmoved, when there are none. */
static inline bool gt_number(const char **text, unsigned long most, unsigned long *value)
{
	const char *at = *text;
	unsigned long found = 0;

	if (*at < '0' || *at > '9')
		return false;
	for (; *at >= '0' && *at <= '9'; at++) {
		unsigned long digit = (unsigned long) (*at - '0');

		if (found > (most - digit) / 10 || digit > most)
			return false;
		found = found * 10 + digit;
	}
	*value = found;
	*text = at;
	return true;
}
