#include "mig.h"

#include <stdio.h>

extern bool gt_is_mig(const char *type_name)
{
	int end = 0;

	for (; type_name && *type_name && !end; type_name++)
		(void) sscanf(type_name, "%*[0-9]g.%*[0-9]gb%n", &end);
	return end > 0;
}
