#include "settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef enum { TEXT, NUMBER, YESNO, GONE } kind_t;

typedef struct {
	const char *key;
	kind_t kind;
	size_t offset;
	uint32_t min, max;
} setting_t;

#define AT(field) offsetof(gt_config_t, field)

static const setting_t settings[] = {
	{ "socket", TEXT, AT(socket), 0, 0 },
	{ "kill_switch", TEXT, AT(kill_switch), 0, 0 },
	{ "deadline_ms", NUMBER, AT(deadline_ms), 1, 1000 },
	{ "breaker_s", NUMBER, AT(breaker_s), 1, 3600 },
	{ "pass_budget_ms", NUMBER, AT(pass_budget_ms), 1, 10000 },
	{ "pass_window_s", NUMBER, AT(pass_window_s), 1, 600 },
	{ "max_postponements", NUMBER, AT(max_postponements), 0, 10000 },
	{ "max_wait_s", NUMBER, AT(max_wait_s), 0, GT_WAIT_MAX_S },
	{ "max_candidates", GONE, AT(gone), 0, 0 },
	{ "stats_every_starts", NUMBER, AT(stats_every_starts), 0, 1000000 },
	{ "stats_interval_s", NUMBER, AT(stats_interval_s), 0, 86400 },
	{ "respect_weight", YESNO, AT(respect_weight), 0, 0 },
	{ "other_nodes", YESNO, AT(other_nodes), 0, 0 },
};
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

extern void gt_config_defaults(gt_config_t *config)
{
	*config = (gt_config_t) {
		.socket = "/run/gputopo/engine.sock",
		.kill_switch = "/etc/slurm/gputopo.disable",
		.deadline_ms = 50,
		.breaker_s = 5,
		.pass_budget_ms = 500,
		.pass_window_s = 5,
		.max_postponements = 10,
		.max_wait_s = 3600,
		.stats_every_starts = 100,
		.stats_interval_s = 600,
		.respect_weight = true,
		.other_nodes = true,
	};
}

/* RET true; or false with what was expected. */
static bool store(gt_config_t *config, const setting_t *setting,
		  const char *value, char *expected, size_t size)
{
	void *field = (char *) config + setting->offset;
	size_t digits = strspn(value, "0123456789");
	uint64_t number = strtoull(value, NULL, 10);

	switch (setting->kind) {
	case TEXT:
		snprintf(expected, size, "an absolute path under %d bytes",
			 GT_PATH_MAX);
		snprintf(field, GT_PATH_MAX, "%s", value);
		return value[0] == '/' && strlen(value) < GT_PATH_MAX;
	case NUMBER:
		snprintf(expected, size, "a number from %u to %u", setting->min,
			 setting->max);
		*(uint32_t *) field = (uint32_t) number;
		return digits && digits < 10 && !value[digits] &&
		       number >= setting->min && number <= setting->max;
	case GONE:
		*(const char **) field = setting->key;
		return true;
	default:
		snprintf(expected, size, "yes or no");
		*(bool *) field = value[0] == 'y';
		return !strcmp(value, "yes") || !strcmp(value, "no");
	}
}

static char *trim(char *text)
{
	size_t len;

	text += strspn(text, " \t\r");
	len = strlen(text);
	while (len && strchr(" \t\r", text[len - 1]))
		text[--len] = '\0';
	return text;
}

static const setting_t *find(const char *key)
{
	for (size_t i = 0; i < SETTINGS; i++)
		if (!strcmp(key, settings[i].key))
			return &settings[i];
	return NULL;
}

/* One line; `seen` has a bit per setting. */
static bool read_line(gt_config_t *config, char *line, uint32_t *seen,
		      char *wrong, size_t size)
{
	char expected[80], *key, *value = strchr(line, '=');
	const setting_t *setting;

	if (!value) {
		snprintf(wrong, size, "expected key=value, read \"%.60s\"",
			 line);
		return false;
	}
	*value++ = '\0';
	key = trim(line);
	value = trim(value);
	if (!(setting = find(key))) {
		snprintf(wrong, size, "unknown key \"%.60s\"", key);
		return false;
	}
	if (*seen & (1u << (setting - settings))) {
		snprintf(wrong, size, "key \"%s\" given twice", key);
		return false;
	}
	*seen |= 1u << (setting - settings);
	if (store(config, setting, value, expected, sizeof(expected)))
		return true;
	snprintf(wrong, size, "key \"%s\": expected %s, read \"%.60s\"", key,
		 expected, value);
	return false;
}

extern bool gt_config_parse(gt_config_t *config, const char *name, char *text,
			    char *wrong, size_t size)
{
	uint32_t seen = 0;
	char why[200];
	int number = 0;

	_Static_assert(SETTINGS <= 32, "one bit per setting");
	gt_config_defaults(config);
	for (char *next = text; next;) {
		char *line = next;

		if ((next = strchr(line, '\n')))
			*next++ = '\0';
		number++;
		line = trim(line);
		if (!line[0] || line[0] == '#')
			continue;
		if (read_line(config, line, &seen, why, sizeof(why)))
			continue;
		snprintf(wrong, size, "%s line %d: %s", name, number, why);
		gt_config_defaults(config);
		return false;
	}
	return true;
}

extern const char *gt_config_find(const char *slurm_conf, char *path,
				  size_t size)
{
	const char *slash = slurm_conf ? strrchr(slurm_conf, '/') : NULL;
	int len;

	if (!slash)
		return GT_CONFIG_PATH;
	len = snprintf(path, size, "%.*s/" GT_CONFIG_NAME,
		       (int) (slash - slurm_conf), slurm_conf);
	if (len < 0 || (size_t) len >= size || access(path, F_OK))
		return GT_CONFIG_PATH;
	return path;
}

extern bool gt_config_load(gt_config_t *config, const char *path, char *wrong,
			   size_t size)
{
	char text[16 * 1024];
	bool failed;
	size_t len;
	FILE *file = fopen(path, "re");

	gt_config_defaults(config);
	if (!file) {
		if (errno == ENOENT)
			return true;
		snprintf(wrong, size, "%s: cannot be read: %s", path,
			 strerror(errno));
		return false;
	}
	len = fread(text, 1, sizeof(text), file);
	failed = ferror(file);	/* a directory opens, but cannot be read */
	fclose(file);
	if (failed || len == sizeof(text) || memchr(text, '\0', len)) {
		snprintf(wrong, size, "%s: expected a text file under %zu bytes", path,
			 sizeof(text));
		return false;
	}
	text[len] = '\0';
	return gt_config_parse(config, path, text, wrong, size);
}
