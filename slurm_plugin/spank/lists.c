#include "lists.h"

#include <stdio.h>
#include <string.h>

extern bool gt_number(const char **text, unsigned long most, unsigned long *value)
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
			set->bits[first / GT_WORD] |= 1ul << (first % GT_WORD);
		if (!*text)
			return true;
		if (*text++ != ',')
			return false;
	}
}

static bool has(const gt_cpuset_t *set, unsigned cpu)
{
	return cpu < GT_CPUS && (set->bits[cpu / GT_WORD] >> (cpu % GT_WORD) & 1);
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

extern void gt_cpuset_and(gt_cpuset_t *set, const gt_cpuset_t *other)
{
	for (size_t i = 0; i < GT_CPUS / GT_WORD; i++)
		set->bits[i] &= other->bits[i];
}

extern unsigned gt_cpuset_count(const gt_cpuset_t *set)
{
	unsigned count = 0;

	for (size_t i = 0; i < GT_CPUS / GT_WORD; i++)
		count += (unsigned) __builtin_popcountl(set->bits[i]);
	return count;
}

extern bool gt_cpuset_equal(const gt_cpuset_t *a, const gt_cpuset_t *b)
{
	return !memcmp(a, b, sizeof(*a));
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
