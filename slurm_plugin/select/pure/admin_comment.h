/*
 * Our part of a job's AdminComment, `[gpu-topo: HINT | NOTE]`: reading it, and
 * editing it without touching what a site or user wrote around it. The grammar
 * is that of slurm_plugin/base/job_notes/brackets.py.
 * No Slurm header.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A piece of another string. */
typedef struct {
	const char *text;
	size_t len;
} gt_slice_t;

typedef struct {
	bool found;
	gt_slice_t before;	/* the comment up to our bracket */
	gt_slice_t hint;
	gt_slice_t note;
	gt_slice_t after;	/* the comment behind our bracket */
} gt_bracket_t;

/* A postponed job's note; it lives in the bracket and so survives restarts. */
typedef struct {
	uint32_t count;		/* waits so far */
	uint32_t cap;		/* waits allowed */
	int64_t since;		/* Unix time of the first wait */
	int64_t until;		/* begin time we gave the job */
	int64_t begin;		/* begin time it had before */
	gt_slice_t why;		/* points into the note it was read from */
} gt_waiting_t;

/* `comment` may be NULL. The slices point into it. */
extern void gt_bracket_read(const char *comment, gt_bracket_t *bracket);

/*
 * The job's hint: in the bracket if there is one, else in the user's comment
 * "gpu-topo: HINT"; empty if there is none.
 */
extern gt_slice_t gt_hint(const char *admin_comment, const char *comment);

/*
 * RET a new string (to free()): the comment with our bracket holding `hint` and
 * `note`; `note` may be empty. NULL without memory.
 */
extern char *gt_bracket_write(const char *comment, gt_slice_t hint,
			      const char *note);

/* RET a new string (to free()): the comment without our bracket. NULL without memory. */
extern char *gt_bracket_remove(const char *comment);

/* The hint of the option --gpu-topo if `variable` holds one; else empty. */
extern gt_slice_t gt_hint_of_option(const char *variable);

/* "waiting 3/10 since 1700000000: NOTE (until 1700000030, begin 1699999000)" */
extern void gt_waiting_write(char *note, size_t size,
			     const gt_waiting_t *waiting);

/* RET true if the note is such a sentence; *waiting is all 0 if it is not */
extern bool gt_waiting_read(gt_slice_t note, gt_waiting_t *waiting);
