/*
 * The plugin's settings: defaults, and an optional file of key=value lines. No Slurm header.
 * The name config.h is taken by Slurm.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GT_CONFIG_NAME "gputopo-select.conf"
#define GT_CONFIG_PATH "/etc/slurm/" GT_CONFIG_NAME
#define GT_PATH_MAX 108			/* as sun_path */
#define GT_WAIT_MAX_S (7 * 24 * 3600)	/* whatever a file or a reply says */

typedef struct {
	char socket[GT_PATH_MAX];	/* where the engine listens */
	char kill_switch[GT_PATH_MAX];	/* while this file exists, only forward */
	uint32_t deadline_ms;		/* for one answer */
	uint32_t breaker_s;		/* no question for so long after a failure */
	uint32_t pass_budget_ms;	/* lock time that may be added in pass_window_s */
	uint32_t pass_window_s;		/* a pass is taken to end after this long */
	uint32_t max_postponements;	/* waits per job */
	/* safety bound from a job's first wait; replies name the site's own bound */
	uint32_t max_wait_s;
	uint32_t stats_every_starts;	/* counters to the log, 0: never */
	uint32_t stats_interval_s;	/* counters to the log, 0: never */
	bool respect_weight;		/* never a node of higher Weight */
	bool other_nodes;		/* may take nodes that Slurm did not choose */
	const char *gone;		/* a key that has no effect any more, or NULL */
} gt_config_t;

extern void gt_config_defaults(gt_config_t *config);

/*
 * The file of this cluster: beside `slurm_conf` (which may be NULL) where there is one,
 * as a host may have several clusters' slurmctld, else GT_CONFIG_PATH. RET path, or that.
 */
extern const char *gt_config_find(const char *slurm_conf, char *path,
				  size_t size);

/*
 * Reads `path` over the defaults; no such file means the defaults.
 * RET true, or false with one sentence in wrong[] that names file, line and key;
 * *config then holds the defaults.
 */
extern bool gt_config_load(gt_config_t *config, const char *path, char *wrong,
			   size_t size);

/* The same from memory; `text` is changed. */
extern bool gt_config_parse(gt_config_t *config, const char *name, char *text,
			    char *wrong, size_t size);
