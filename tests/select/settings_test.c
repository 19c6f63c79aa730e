#define _GNU_SOURCE
#include "settings.h"

#include <stdlib.h>
#include <unistd.h>

#include "../claims.h"

static gt_config_t config;
static char wrong[300];

static bool settings(const char *text)
{
	char copy[4096];

	snprintf(copy, sizeof(copy), "%s", text);
	wrong[0] = '\0';
	return gt_config_parse(&config, "select.conf", copy, wrong, sizeof(wrong));
}

CLAIM(settings_start_from_the_defaults)
{
	CHECK(settings(""));
	CHECK(config.deadline_ms == 50 && config.pass_budget_ms == 500);
	CHECK(config.respect_weight && !config.gone);
	CHECK_TEXT(config.socket, "/run/gputopo/engine.sock");
	CHECK_TEXT(config.kill_switch, "/etc/slurm/gputopo.disable");
}

CLAIM(settings_are_read)
{
	CHECK(settings("# ours\n\n deadline_ms = 20 \r\nrespect_weight=no\n"
		       "socket=/tmp/x=y.sock"));
	CHECK(config.deadline_ms == 20 && !config.respect_weight);
	CHECK_TEXT(config.socket, "/tmp/x=y.sock");
}

/* A file of an earlier release goes on to work. */
CLAIM(a_setting_without_effect_is_named)
{
	CHECK(settings("deadline_ms=20\nmax_candidates=2000\n"));
	CHECK(config.deadline_ms == 20);
	CHECK_TEXT(config.gone, "max_candidates");
	CHECK(!settings("max_candidates=1\nmax_candidates=2"));
	CHECK(settings("max_candidates=many"));
}

CLAIM(a_bad_setting_is_named_and_nothing_of_it_kept)
{
	static const char *const bad[][2] = {
		{ "deadline=5", "select.conf line 1: unknown key \"deadline\"" },
		{ "\n\nbreaker_s=0", "select.conf line 3: key \"breaker_s\": "
		  "expected a number from 1 to 3600, read \"0\"" },
		{ "deadline_ms=5ms", "select.conf line 1: key \"deadline_ms\": "
		  "expected a number from 1 to 1000, read \"5ms\"" },
		{ "deadline_ms=", "select.conf line 1: key \"deadline_ms\": "
		  "expected a number from 1 to 1000, read \"\"" },
		{ "deadline_ms=99999999999", "select.conf line 1: key "
		  "\"deadline_ms\": expected a number from 1 to 1000, read "
		  "\"99999999999\"" },
		{ "respect_weight=true", "select.conf line 1: key "
		  "\"respect_weight\": expected yes or no, read \"true\"" },
		{ "socket=engine.sock", "select.conf line 1: key \"socket\": "
		  "expected an absolute path under 108 bytes, read "
		  "\"engine.sock\"" },
		{ "what", "select.conf line 1: expected key=value, read "
		  "\"what\"" },
		{ "deadline_ms=1\ndeadline_ms=2",
		  "select.conf line 2: key \"deadline_ms\" given twice" },
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CHECK(!settings(bad[i][0]));
		CHECK_TEXT(wrong, bad[i][1]);
		CHECK(config.deadline_ms == 50);
	}
}

CLAIM(a_missing_file_means_the_defaults)
{
	CHECK(gt_config_load(&config, "/nonexistent/select.conf", wrong, 300));
	CHECK(config.deadline_ms == 50);
	CHECK(!gt_config_load(&config, "/", wrong, 300));
}

CLAIM(each_cluster_of_a_host_has_its_file_beside_its_slurm_conf)
{
	char folder[] = "/tmp/gputopo-settings-XXXXXX", path[100], file[100];
	char conf[100];
	FILE *made;

	CHECK(mkdtemp(folder));
	snprintf(conf, sizeof(conf), "%s/slurm.conf", folder);
	snprintf(file, sizeof(file), "%s/gputopo-select.conf", folder);
	CHECK_TEXT(gt_config_find(conf, path, sizeof(path)), GT_CONFIG_PATH);
	CHECK((made = fopen(file, "w")) && !fclose(made));
	CHECK_TEXT(gt_config_find(conf, path, sizeof(path)), file);
	CHECK_TEXT(gt_config_find(conf, path, 20), GT_CONFIG_PATH);
	CHECK_TEXT(gt_config_find(NULL, path, sizeof(path)), GT_CONFIG_PATH);
	CHECK_TEXT(gt_config_find("slurm.conf", path, 100), GT_CONFIG_PATH);
	CHECK(!unlink(file) && !rmdir(folder));
}

CLAIM(no_file_stays_open)
{
	int before = dup(STDIN_FILENO), after;

	close(before);
	CHECK(!gt_config_load(&config, "/", wrong, 300));
	after = dup(STDIN_FILENO);
	close(after);
	CHECK(before >= 0 && after == before);
}
