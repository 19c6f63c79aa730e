#include "settings.h"

#include <stdio.h>
#include <string.h>

/* The words of settings and hints, in the order of the enums */
static const char *const binds[] = { "none", "numa", NULL };
static const char *const mems[] = { "none", "preferred", "bind", "interleave", NULL };
static const char *const nics[] = { "off", "on", "trust", NULL };
static const char *const numberings[] = { "auto", "global", "relative", NULL };

#define AT(field) offsetof(gt_settings_t, field), sizeof(((gt_settings_t *) 0)->field)

static const struct {
	const char *key;
	size_t offset, size;
	const char *const *words;	/* NULL: a text */
	const char *expected;
} known[] = {
	{ "table", AT(table), NULL, "an absolute path" },
	{ "devices", AT(devices), NULL, "an absolute path" },
	{ "uuids", AT(uuids), NULL, "an absolute path" },
	{ "record", AT(record), NULL, "an absolute path" },
	{ "pretend", AT(pretend), NULL, "CPUs such as 0-3,8" },
	{ "pattern", AT(pattern), NULL, "a pattern's name" },
	{ "bind", AT(bind), binds, "numa or none" },
	{ "mem", AT(mem), mems, "preferred, bind, interleave or none" },
	{ "nic", AT(nic), nics, "on, off or trust" },
	{ "numbering", AT(numbering), numberings, "auto, global or relative" },
};

extern const char *gt_mem_name(gt_mem_t mem)
{
	return mems[mem];
}

extern void gt_settings_defaults(gt_settings_t *settings)
{
	*settings = (gt_settings_t) {
		.table = "/etc/slurm/gputopo-launch.table",
		.pattern = "ring",
		.uuids = "/proc/driver/nvidia/gpus",
		.bind = GT_BIND_NUMA,
		.mem = GT_MEM_PREFERRED,
		.nic = GT_NIC_ON,
		.numbering = GT_AUTO,
	};
}

/* RET NULL when the value is stored, what was expected when it does not fit, or "" when
 * there is no such key */
static const char *store(gt_settings_t *settings, const char *key, const char *value)
{
	size_t i = 0;
	void *field;
	gt_cpuset_t cpus;

	while (i < sizeof(known) / sizeof(known[0]) && strcmp(key, known[i].key))
		i++;
	if (i == sizeof(known) / sizeof(known[0]))
		return "";
	field = (char *) settings + known[i].offset;
	for (unsigned at = 0; known[i].words && known[i].words[at]; at++)
		if (!strcmp(value, known[i].words[at])) {
			*(unsigned *) field = at;
			return NULL;
		}
	if (known[i].words || !value[0] || strlen(value) >= known[i].size)
		return known[i].expected;
	if (field == settings->pretend ? !gt_cpuset_parse(&cpus, value) :
	    field != settings->pattern && value[0] != '/')
		return known[i].expected;
	strcpy(field, value);
	return NULL;
}

/* Reads one argument. RET false with one sentence in wrong */
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
	gt_settings_t read;

	gt_settings_defaults(settings);
	read = *settings;
	for (int i = 0; i < argc; i++) {
		if (!read_argument(&read, argv[i], wrong))
			return false;
		if (is_repeated(argv, i)) {
			snprintf(wrong, GT_NOTE, "argument \"%.60s\": given twice", argv[i]);
			return false;
		}
	}
	*settings = read;
	return true;
}

static char *trim(char *text)
{
	size_t len;

	text += strspn(text, " ");
	for (len = strlen(text); len && text[len - 1] == ' ';)
		text[--len] = '\0';
	return text;
}

extern bool gt_hint_apply(const char *hint, gt_settings_t *settings)
{
	char copy[GT_HINT + 1], *rest = NULL;

	snprintf(copy, sizeof(copy), "%s", hint);
	if (!strcmp(trim(copy), "off"))
		return false;
	for (char *item = strtok_r(copy, ",", &rest); item; item = strtok_r(NULL, ",", &rest)) {
		char *value = strchr(item, '='), *key;

		if (!value)
			continue;
		*value++ = '\0';
		key = trim(item);
		if (!strcmp(key, "pattern") || !strcmp(key, "bind") || !strcmp(key, "mem"))
			store(settings, key, trim(value));
	}
	return true;
}

extern const char *gt_hint_refused(const char *hint)
{
	if (strlen(hint) > GT_HINT)
		return "is longer than 1024 bytes";
	for (; *hint; hint++) {
		if ((unsigned char) *hint < ' ' || *hint == 0x7f)
			return "holds a control character (line feed, tab or the like)";
		/* Brackets and bars delimit the records that will hold the hint. */
		if ((unsigned char) *hint > 0x7f || strchr("[]|", *hint))
			return "holds a character that no hint has; hints are printable ASCII without [, ] and |";
	}
	return NULL;
}
