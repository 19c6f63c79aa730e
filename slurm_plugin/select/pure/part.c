#include "part.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static bool is_mig(const char *type_name)
{
	int end = 0;

	for (; *type_name && !end; type_name++)
		(void) sscanf(type_name, "%*[0-9]g.%*[0-9]gb%n", &end);
	return end > 0;
}

/* A mode of AMD's GPUs at the type's end: cpx, cpx_nps4 */
static bool is_mode(const char *type_name)
{
	size_t length = strlen(type_name), mode = strlen("cpx");
	const char *at;

	if (length > strlen("_nps4") && length > mode &&
	    !strncmp(type_name + length - strlen("_nps4"), "_nps", 4) &&
	    strchr("12345678", type_name[length - 1]))
		length -= strlen("_nps4");
	if (length < mode)
		return false;
	at = type_name + length - mode;
	return strchr("dtqc", at[0]) && !strncmp(at + 1, "px", 2) &&
	       (at == type_name ||
		!(isdigit((unsigned char) at[-1]) || islower((unsigned char) at[-1])));
}

extern bool gt_is_part(const char *type_name)
{
	return type_name && (is_mig(type_name) || is_mode(type_name));
}
