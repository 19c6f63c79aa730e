#include "stats.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FEW_PERCENT 3

#define NAME(constant, name) [GT_##constant] = name,

static const char *const names[GT_RESULTS] = { GT_RESULT_LIST(NAME) };

extern const char *gt_result_name(gt_result_t result)
{
	return names[result];
}

static void keep(int32_t *samples, uint64_t n, int64_t us, int32_t *max_us)
{
	int32_t sample = us > INT32_MAX ? INT32_MAX : (int32_t) us;

	samples[n % GT_SAMPLES] = sample;
	if (sample > *max_us)
		*max_us = sample;
}

extern void gt_stats_add(gt_stats_t *stats, gt_result_t result,
			 int64_t added_us, int64_t own_us)
{
	stats->count[result]++;
	stats->since_line++;
	if (result >= GT_BREAKER)
		return;		/* not asked */
	stats->asked++;
	keep(stats->added_us, stats->samples, added_us, &stats->added_max_us);
	keep(stats->own_us, stats->samples, own_us, &stats->own_max_us);
	stats->samples++;
}

extern int gt_stats_due(gt_stats_t *stats, uint32_t every, int64_t interval_us,
			int64_t now_us)
{
	if (!stats->since_line)
		return 0;
	if (!stats->line_us)
		stats->line_us = now_us;
	return (every && stats->since_line >= every) ||
	       (interval_us && now_us - stats->line_us >= interval_us);
}

extern uint64_t gt_stats_out(const gt_stats_t *stats)
{
	uint64_t out = stats->count[GT_BUDGET_OUT] - stats->out_before;

	return out * 100 > stats->since_line * FEW_PERCENT ? out : 0;
}

static int by_value(const void *a, const void *b)
{
	int32_t x = *(const int32_t *) a, y = *(const int32_t *) b;

	return (x > y) - (x < y);
}

static int32_t median(const gt_stats_t *stats, const int32_t *samples)
{
	size_t n = stats->samples < GT_SAMPLES ? (size_t) stats->samples :
						 GT_SAMPLES;
	int32_t sorted[GT_SAMPLES];

	if (!n)
		return 0;
	memcpy(sorted, samples, n * sizeof(sorted[0]));
	qsort(sorted, n, sizeof(sorted[0]), by_value);
	return sorted[n / 2];
}

extern void gt_stats_line(gt_stats_t *stats, int64_t now_us, char *text,
			  size_t size)
{
	int len = snprintf(text, size, "asked=%" PRIu64, stats->asked);

	for (int i = 0; i < GT_RESULTS && len > 0 && (size_t) len < size; i++)
		len += snprintf(text + len, size - (size_t) len,
				" %s=%" PRIu64, names[i], stats->count[i]);
	if (len > 0 && (size_t) len < size)
		snprintf(text + len, size - (size_t) len,
			 " added_us_median=%d added_us_max=%d own_us_median=%d own_us_max=%d",
			 median(stats, stats->added_us), stats->added_max_us,
			 median(stats, stats->own_us), stats->own_max_us);
	stats->since_line = 0;
	stats->out_before = stats->count[GT_BUDGET_OUT];
	stats->line_us = now_us;
}

extern int64_t gt_budget_left(gt_budget_t *budget, int64_t now_us,
			      int64_t limit_us, int64_t window_us)
{
	double back = (double) (now_us - budget->at_us) * limit_us / window_us;

	if (!budget->at_us || back >= budget->spent_us) {
		budget->spent_us = 0;
		budget->at_us = now_us;
	} else {
		/* only the time of whole microseconds: looks may be closer together than these */
		budget->spent_us -= (int64_t) back;
		budget->at_us += (int64_t) back * window_us / limit_us;
	}
	return limit_us - budget->spent_us;
}
