#include "settings.h"

#include <stdint.h>

#include "../claims.h"

static gt_settings_t settings;
static char wrong[GT_NOTE];

static bool settings_of(const char *one, const char *two)
{
	char *argv[] = { (char *) (uintptr_t) one, (char *) (uintptr_t) two };

	wrong[0] = '\0';
	return gt_settings_parse(&settings, one ? two ? 2 : 1 : 0, argv, wrong);
}

CLAIM(no_arguments_mean_the_defaults)
{
	CHECK(settings_of(NULL, NULL));
	CHECK_TEXT(settings.table, "/etc/slurm/gputopo-launch.table");
	CHECK_TEXT(settings.pattern, "ring");
	CHECK(settings.bind && settings.mem == GT_MEM_PREFERRED);
	CHECK(settings.nic == GT_NIC_ON && settings.numbering == GT_AUTO);
}

CLAIM(each_argument_is_kept)
{
	CHECK(settings_of("table=/t", "devices=/dev/x"));
	CHECK_TEXT(settings.table, "/t");
	CHECK_TEXT(settings.devices, "/dev/x");
	CHECK(settings_of("record=/r", "pretend=0-3,8"));
	CHECK_TEXT(settings.record, "/r");
	CHECK_TEXT(settings.pretend, "0-3,8");
	CHECK(settings_of("bind=numa", "mem=none"));
	CHECK(settings.bind && settings.mem == GT_MEM_NONE);
	CHECK(settings_of("bind=none", "mem=interleave"));
	CHECK(!settings.bind && settings.mem == GT_MEM_INTERLEAVE);
	CHECK(settings_of("nic=trust", "numbering=relative"));
	CHECK(settings.nic == GT_NIC_TRUST && settings.numbering == GT_RELATIVE);
	CHECK(settings_of("nic=off", "numbering=auto"));
	CHECK(settings.nic == GT_NIC_OFF && settings.numbering == GT_AUTO);
}

CLAIM(a_name_fills_its_room_and_no_more)
{
	char argument[8 + GT_NAME + 1] = "pattern=";

	memset(argument + 8, 'a', GT_NAME - 1);
	CHECK(settings_of(argument, NULL));
	CHECK_TEXT(settings.pattern, argument + 8);
	argument[8 + GT_NAME - 1] = 'a';
	CHECK(!settings_of(argument, NULL));
	CHECK(strstr(wrong, "; expected a pattern's name"));
	CHECK(!settings_of("pattern=", NULL));
}

CLAIM(a_wrong_argument_names_its_key)
{
	CHECK(!settings_of("mem=bind", "memory=bind"));
	CHECK_TEXT(wrong, "argument \"memory\": no such key; expected table, pattern, bind, mem,"
		   " nic, numbering or devices");
	CHECK(settings.mem == GT_MEM_PREFERRED);
	CHECK(!settings_of("mem=strict", NULL));
	CHECK_TEXT(wrong, "argument mem: \"strict\"; expected preferred, bind, interleave or"
		   " none");
	CHECK(!settings_of("table=x", NULL));
	CHECK_TEXT(wrong, "argument table: \"x\"; expected an absolute path");
	CHECK(!settings_of("pretend=3-1", NULL));
	CHECK_TEXT(wrong, "argument pretend: \"3-1\"; expected CPUs such as 0-3,8");
	CHECK(!settings_of("mem=bind", "mem=none"));
	CHECK_TEXT(wrong, "argument \"mem=none\": given twice");
	CHECK(!settings_of("debug", NULL));
	CHECK_TEXT(wrong, "argument \"debug\": expected key=value");
}

CLAIM(a_hint_changes_only_what_it_names)
{
	CHECK(settings_of(NULL, NULL));
	CHECK(gt_hint_apply("policy=mapa, mem = bind ,spread", &settings));
	CHECK(settings.mem == GT_MEM_BIND && settings.bind);
	CHECK_TEXT(settings.pattern, "ring");
	CHECK(gt_hint_apply("pattern=tree,bind=none", &settings));
	CHECK(!settings.bind);
	CHECK_TEXT(settings.pattern, "tree");
	CHECK(gt_hint_apply("mem=,mem=strict,bind,=,,pattern=", &settings));
	CHECK(settings.mem == GT_MEM_BIND);
	CHECK_TEXT(settings.pattern, "tree");
	CHECK(gt_hint_apply("", &settings));
}

CLAIM(a_hint_of_off_opts_out)
{
	CHECK(settings_of(NULL, NULL));
	CHECK(!gt_hint_apply("off", &settings));
	CHECK(!gt_hint_apply("  off ", &settings));
	CHECK(gt_hint_apply("offer=1", &settings));
}

CLAIM(a_hint_that_cannot_be_carried_is_refused)
{
	char longest[GT_HINT + 2];

	memset(longest, 'a', sizeof(longest));
	longest[GT_HINT + 1] = '\0';
	CHECK_TEXT(gt_hint_refused(longest), "is longer than 1024 bytes");
	longest[GT_HINT] = '\0';
	CHECK(!gt_hint_refused(longest));
	CHECK(!gt_hint_refused("pattern=ring"));
	CHECK(gt_hint_refused("a\nb") && gt_hint_refused("a\tb") && gt_hint_refused("\x7f"));
}
