#include "cluster.h"

#include <time.h>

#include "bits.h"
#include "gpus.h"
#include "node_set.h"
#include "plugin.h"

/* Of so many nodes, in turn, every question takes a look: a change that nothing told us of. */
#define AUDITED 32
/* Of so many that were not ready it takes another look, though Slurm may offer more of them. */
#define UNREADY_MOST 512
/* Of slurmctld's time, questions may look at all nodes for so small a part. */
#define BUILDING_PART 100

static bool renew;		/* the next table is a new one, whatever it shows */
static int64_t build_again_us;	/* a question looks at all nodes no earlier */
static uint32_t next_audited;

/* Sets of nodes, of so many words each */
static size_t word_count;
static uint64_t *up;		/* not DOWN, by Slurm, when last looked at */
static uint64_t *unready;	/* whose GPUs are still to come: they have not registered */
static uint64_t *words;		/* for the moment */

static void look(uint32_t index, gt_node_t *node)
{
	uint64_t bit = 1ULL << index % 64;

	if (gt_node_read((int) index, node))
		unready[index / 64] |= bit;
	else
		unready[index / 64] &= ~bit;
}

static void look_at(uint32_t index)
{
	gt_node_t node;

	look(index, &node);
	gt_mirror_look(&gt_plugin.mirror, index, &node);
}

/* Of this thread alone: a machine that is busy with others makes no look at all nodes longer. */
static int64_t thread_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

/* RET how many nodes the mirror has; 0 if nothing may be looked at, or it must be built first */
static uint32_t kept(void)
{
	uint32_t count = renew ? 0 : gt_mirror_count(&gt_plugin.mirror);

	/* Slurm is reading its configuration: too soon to check its records */
	if (!count)
		return 0;
	if (count == (uint32_t) node_record_count && gt_plugin_may_act())
		return count;
	gt_mirror_forget(&gt_plugin.mirror);
	return 0;
}

extern void gt_cluster_renew(void)
{
	renew = true;
	gt_mirror_forget(&gt_plugin.mirror);
}

static void keep_up_nodes(uint64_t *set)
{
	gt_bits_words(&up_node_bitmap ? up_node_bitmap : NULL, set, word_count);
}

extern void gt_cluster_build(void)
{
	int64_t start_us = thread_us(), took_us;

	if (!gt_plugin_may_act()) {
		gt_mirror_forget(&gt_plugin.mirror);
		return;
	}
	word_count = (size_t) node_record_count / 64 + 1;
	xrecalloc(up, word_count, sizeof(*up));
	xrecalloc(unready, word_count, sizeof(*unready));
	xrecalloc(words, word_count, sizeof(*words));
	keep_up_nodes(up);
	if (gt_mirror_build(&gt_plugin.mirror, node_record_count, look, renew))
		renew = false;
	took_us = thread_us() - start_us;
	build_again_us = gt_now_us() + took_us * BUILDING_PART;
}

/*
 * Looks at all nodes anew if the table differs from what a look at one found, or if it was
 * given up while the kill switch was thrown; and not too often.
 */
static void build_if_due(void)
{
	if (!kept() && !renew && gt_now_us() >= build_again_us)
		gt_cluster_build();
}

extern void gt_cluster_node(int index)
{
	if (index >= 0 && (uint32_t) index < kept())
		look_at((uint32_t) index);
	build_if_due();
}

extern void gt_cluster_job(const job_record_t *job)
{
	uint32_t count = kept();

	if (!gt_plugin_may_read(job) || !job->job_resrcs ||
	    !job->job_resrcs->node_bitmap)
		return;
	for (int i = 0; (uint32_t) i < count &&
	     next_node_bitmap(job->job_resrcs->node_bitmap, &i); i++)
		look_at((uint32_t) i);
	build_if_due();
}

/* -------------------------------------------------------------- questions */

static void look_at_set(const uint64_t *set, uint32_t count, uint32_t most)
{
	for (size_t w = 0; w < word_count; w++)
		for (uint64_t left = set[w]; left; left &= left - 1) {
			size_t index = w * 64 + __builtin_ctzll(left);

			if (index >= count || !most--)
				return;
			look_at((uint32_t) index);
		}
}

/* The engine compares Slurm's own nodes with what it knows: these must be right. */
static void look_around(bitstr_t *own, bitstr_t *offered, uint32_t count)
{
	gt_bits_words(own, words, word_count);
	look_at_set(words, count, count);
	/* avail_node_bitmap is no help: while a job is tested it is that job's alone */
	keep_up_nodes(words);
	for (size_t w = 0; w < word_count; w++) {
		uint64_t now = words[w];

		words[w] ^= up[w];
		up[w] = now;
	}
	look_at_set(words, count, count);
	gt_bits_words(offered, words, word_count);
	for (size_t w = 0; w < word_count; w++)
		words[w] &= unready[w];
	look_at_set(words, count, UNREADY_MOST);
	for (uint32_t n = 0; n < AUDITED && n < count; n++)
		look_at(next_audited++ % count);
}

extern bool gt_cluster_is_known(bitstr_t *own, bitstr_t *offered)
{
	uint32_t count = kept();

	if (count)
		look_around(own, offered, count);
	if (!kept() && (renew || gt_now_us() >= build_again_us))
		gt_cluster_build();
	return gt_mirror_known(&gt_plugin.mirror);
}

extern void gt_cluster_write(gt_line_t *line, bitstr_t *others)
{
	gt_mirror_write(&gt_plugin.mirror, line);
	gt_bits_words(others, words, word_count);
	gt_line_set(line, "others", words, word_count);
}
