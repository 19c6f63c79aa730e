#include "settings.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Words a setting or a hint may have, in the order of the enum. */
static const char *const binds[] = { "none", "numa", NULL };
static const char *const mems[] = { "none", "preferred", "bind", "interleave", NULL };
static const char *const nics[] = { "off", "on", "trust", NULL };
static const char *const numberings[] = { "auto", "global", "relative", NULL };

static int word_at(const char *const words[], const char *word, size_t len)
{
	for (int i = 0; words[i]; i++)
		if (strlen(words[i]) == len && !memcmp(words[i], word, len))
			return i;
	return -1;
}

extern bool gt_bind_parse(const char *word, size_t len, bool *bind)
{
	int at = word_at(binds, word, len);

	if (at >= 0)
		*bind = at == 1;
	return at >= 0;
}

extern bool gt_mem_parse(const char *word, size_t len, gt_mem_t *mem)
{
	int at = word_at(mems, word, len);

	if (at >= 0)
		*mem = (gt_mem_t) at;
	return at >= 0;
}

extern const char *gt_mem_name(gt_mem_t mem)
{
	return mems[mem];
}

extern void gt_settings_defaults(gt_settings_t *settings)
{
	*settings = (gt_settings_t) {
		.table = "/etc/slurm/gputopo-launch.table",
		.pattern = "ring",
		.bind = true,
		.mem = GT_MEM_PREFERRED,
		.nic = GT_NIC_ON,
		.numbering = GT_AUTO,
	};
}

static bool keep(char *out, size_t size, const char *value)
{
	if (!value[0] || strlen(value) >= size)
		return false;
	snprintf(out, size, "%s", value);
	return true;
}

static bool keep_path(char *out, const char *value)
{
	return value[0] == '/' && keep(out, GT_PATH, value);
}

static bool keep_cpus(char *out, const char *value)
{
	gt_cpuset_t set;

	return gt_cpuset_parse(&set, value) && keep(out, GT_PATH, value);
}

/* RET what was expected when the value does not fit, NULL when it is stored,
 * "" when there is no such key. */
static const char *store(gt_settings_t *s, const char *key, const char *value)
{
	size_t len = strlen(value);
	int at;

	if (!strcmp(key, "table"))
		return keep_path(s->table, value) ? NULL : "an absolute path";
	if (!strcmp(key, "devices"))
		return keep_path(s->devices, value) ? NULL : "an absolute path";
	if (!strcmp(key, "record"))
		return keep_path(s->record, value) ? NULL : "an absolute path";
	if (!strcmp(key, "pretend"))
		return keep_cpus(s->pretend, value) ? NULL : "CPUs such as 0-3,8";
	if (!strcmp(key, "pattern"))
		return keep(s->pattern, GT_NAME, value) ? NULL : "a pattern's name";
	if (!strcmp(key, "bind"))
		return gt_bind_parse(value, len, &s->bind) ? NULL : "numa or none";
	if (!strcmp(key, "mem"))
		return gt_mem_parse(value, len, &s->mem) ? NULL :
			"preferred, bind, interleave or none";
	if (!strcmp(key, "nic")) {
		if ((at = word_at(nics, value, len)) < 0)
			return "on, off or trust";
		s->nic = (gt_nic_t) at;
		return NULL;
	}
	if (!strcmp(key, "numbering")) {
		if ((at = word_at(numberings, value, len)) < 0)
			return "auto, global or relative";
		s->numbering = (gt_numbering_t) at;
		return NULL;
	}
	return "";
}

/* One argument; RET false with the sentence in wrong. */
static bool read_argument(gt_settings_t *settings, const char *argument, char *wrong)
{
	const char *equals = strchr(argument, '=');
	size_t len = equals ? (size_t) (equals - argument) : 0;
	const char *expected;
	char key[GT_NAME];

	if (!equals || len >= sizeof(key)) {
		snprintf(wrong, GT_NOTE, "argument \"%.60s\": expected key=value", argument);
		return false;
	}
	memcpy(key, argument, len);
	key[len] = '\0';
	if (!(expected = store(settings, key, equals + 1)))
		return true;
	if (expected[0])
		snprintf(wrong, GT_NOTE, "argument %s: \"%.60s\"; expected %s", key, equals + 1,
			 expected);
	else
		snprintf(wrong, GT_NOTE, "argument \"%s\": no such key; expected table, pattern,"
			 " bind, mem, nic, numbering or devices", key);
	return false;
}

static bool is_repeated(char *const argv[], int at)
{
	size_t len = strcspn(argv[at], "=") + 1;

	for (int i = 0; i < at; i++)
		if (!strncmp(argv[i], argv[at], len))
			return true;
	return false;
}

extern bool gt_settings_parse(gt_settings_t *settings, int argc, char *const argv[],
			      char *wrong)
{
	gt_settings_defaults(settings);
	for (int i = 0; i < argc; i++) {
		bool good = read_argument(settings, argv[i], wrong);

		if (good && is_repeated(argv, i)) {
			snprintf(wrong, GT_NOTE, "argument \"%.60s\": given twice", argv[i]);
			good = false;
		}
		if (!good) {
			gt_settings_defaults(settings);
			return false;
		}
	}
	return true;
}
