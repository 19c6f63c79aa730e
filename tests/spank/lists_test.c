#include "lists.h"

#include "../claims.h"

CLAIM(cpu_lists_are_read_and_written)
{
	gt_cpuset_t set, other;
	char text[64];

	CHECK(gt_cpuset_parse(&set, "8,0-3,5"));
	gt_cpuset_print(&set, text, sizeof(text));
	CHECK_TEXT(text, "0-3,5,8");
	CHECK(CPU_COUNT_S(sizeof(set), set.of) == 6);
	CHECK(gt_cpuset_parse(&other, "2-5,8191"));
	CPU_AND_S(sizeof(set), set.of, set.of, other.of);
	gt_cpuset_print(&set, text, sizeof(text));
	CHECK_TEXT(text, "2-3,5");
	gt_cpuset_print(&set, text, 4);
	CHECK(strlen(text) < 4);
}

CLAIM(bad_cpu_lists_are_refused)
{
	static const char *const bad[] = { "", ",", "1,", "-1", "3-1", "0-8192", "8192", "1 ",
		"0x1", "99999999999999999999", "1--2", "a" };
	gt_cpuset_t set;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK(!gt_cpuset_parse(&set, bad[i]));
}

CLAIM(a_number_above_the_most_is_none_and_stays_unread)
{
	const char *text = "8,9";
	unsigned long value = 1;

	CHECK(!gt_number(&text, 7, &value) && value == 1);
	CHECK_TEXT(text, "8,9");
	CHECK(gt_number(&text, 8, &value) && value == 8);
	CHECK_TEXT(text, ",9");
}

CLAIM(gpu_lists_are_read_strictly)
{
	gt_list_t list;

	CHECK(gt_list_parse(&list, "3,0,127"));
	CHECK(list.count == 3 && list.gpu[0] == 3 && list.gpu[2] == 127);
	CHECK(!gt_list_parse(&list, "") && !gt_list_parse(&list, "0,0"));
	CHECK(!gt_list_parse(&list, "128") && !gt_list_parse(&list, "GPU-1a2b"));
	CHECK(!gt_list_parse(&list, "0-3") && !gt_list_parse(&list, "0,"));
}
