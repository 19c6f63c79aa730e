#include "lists.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern bool gt_number(const char **text, unsigned long most, unsigned long *value)
{
	unsigned long found;
	char *end;

	if (**text < '0' || **text > '9')
		return false;
	found = strtoul(*text, &end, 10);
	if (found > most)
		return false;
	*value = found;
	*text = end;
	return true;
}

extern bool gt_cpuset_parse(gt_cpuset_t *set, const char *text)
{
	memset(set, 0, sizeof(*set));
	for (;;) {
		unsigned long first, last;

		if (!gt_number(&text, GT_CPUS - 1, &first))
			return false;
		last = first;
		if (*text == '-') {
			text++;
			if (!gt_number(&text, GT_CPUS - 1, &last) || last < first)
				return false;
		}
		for (; first <= last; first++)
			CPU_SET_S(first, sizeof(set->of), set->of);
		if (!*text)
			return true;
		if (*text++ != ',')
			return false;
	}
}

static bool has(const gt_cpuset_t *set, unsigned cpu)
{
	return CPU_ISSET_S(cpu, sizeof(set->of), set->of);
}

extern void gt_cpuset_print(const gt_cpuset_t *set, char *text, size_t size)
{
	size_t at = 0;

	text[0] = '\0';
	for (unsigned cpu = 0; cpu < GT_CPUS && at < size; cpu++) {
		unsigned first = cpu;

		if (!has(set, cpu))
			continue;
		while (has(set, cpu + 1))
			cpu++;
		at += (size_t) snprintf(text + at, size - at, "%s%u",
					at ? "," : "", first);
		if (cpu > first && at < size)
			at += (size_t) snprintf(text + at, size - at, "-%u", cpu);
	}
}

extern bool gt_list_has(const gt_list_t *list, int gpu)
{
	for (int i = 0; i < list->count; i++)
		if (list->gpu[i] == gpu)
			return true;
	return false;
}

extern bool gt_list_within(const gt_list_t *some, const gt_list_t *all)
{
	for (int i = 0; i < some->count; i++)
		if (!gt_list_has(all, some->gpu[i]))
			return false;
	return true;
}

extern bool gt_list_parse(gt_list_t *list, const char *text)
{
	unsigned long gpu;

	list->count = 0;
	for (;;) {
		if (!gt_number(&text, GT_GPUS - 1, &gpu) || gt_list_has(list, (int) gpu))
			return false;
		list->gpu[list->count++] = (int) gpu;
		if (!*text)
			return true;
		if (*text++ != ',')
			return false;
	}
}
