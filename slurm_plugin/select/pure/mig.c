#include "mig.h"

#include <string.h>

#define DIGITS "0123456789"

/* digits, "g.", digits, "gb" starting here */
static bool is_profile(const char *text)
{
	size_t slices = strspn(text, DIGITS), gigabytes;

	if (!slices || strncmp(text + slices, "g.", 2))
		return false;
	text += slices + 2;
	gigabytes = strspn(text, DIGITS);
	return gigabytes && !strncmp(text + gigabytes, "gb", 2);
}

extern bool gt_is_mig(const char *type_name)
{
	for (const char *at = type_name; at && *at; at++)
		if (is_profile(at))
			return true;
	return false;
}
