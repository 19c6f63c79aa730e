/*
 * The engine's wire protocol (docs/protocol.md): building lines, reading replies.
 * No Slurm header, no socket, no clock.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GT_LINE_MAX (1024 * 1024)	/* bytes of a request line, LF included */
#define GT_REPLY_MAX (64 * 1024)	/* bytes of a reply line, LF included */
#define GT_PICKS_MAX 4096		/* node= or alt= fields read from a reply */
#define GT_NAME_MAX 1024		/* bytes of a name in a request */
#define GT_NOTE_MAX 200			/* bytes of a note */

/* A line under construction; the memory is kept from one line to the next. */
typedef struct {
	char *text;
	size_t len;
	size_t size;
	bool failed;		/* too long, or no memory */
} gt_line_t;

#define GT_GPUS_MAX 64			/* bits of a mask */

/* What shards or MPS are left on a node, by GPU */
typedef struct {
	uint32_t total;		/* GPUs on the node */
	uint64_t idle;		/* GPUs that nobody uses any part of */
	uint64_t left[GT_GPUS_MAX];
} gt_shares_t;

/* One candidate node: bit i of a mask is Slurm's GPU index i on that node. */
typedef struct {
	const char *name;
	uint32_t total;		/* GPUs on the node */
	uint64_t free;		/* GPUs the job may take */
	uint64_t own;		/* GPUs Slurm itself would take */
	uint32_t weight;	/* Slurm's node Weight */
	const gt_shares_t *shares;	/* of a job of shards or MPS, else NULL */
} gt_candidate_t;

typedef enum {
	GT_REPLY_USE,
	GT_REPLY_WAIT,
	GT_REPLY_PASS,
	GT_REPLY_ERROR,
	GT_REPLY_OK,		/* to a part of the table of nodes */
} gt_reply_kind_t;

typedef struct {
	char *name;		/* points into the reply's line */
	uint64_t mask;
} gt_pick_t;

typedef struct {
	gt_reply_kind_t kind;
	uint64_t id;
	uint32_t wait_s;
	uint32_t max_wait_s;	/* the bound on all waits of the job; 0: not said */
	bool quiet;		/* nothing of ours may stand in AdminComment */
	bool resync;		/* the engine lacks the table of nodes, or has another */
	bool has_digest;
	uint64_t digest;	/* of the free GPUs that the engine has */
	char note[GT_NOTE_MAX + 1];
	size_t pick_count;	/* node= */
	size_t alt_count;	/* alt= */
	gt_pick_t picks[GT_PICKS_MAX];
	gt_pick_t alts[GT_PICKS_MAX];
} gt_reply_t;

extern void gt_line_begin(gt_line_t *line, const char *verb);
extern void gt_line_number(gt_line_t *line, const char *key, uint64_t value);
extern void gt_line_hex(gt_line_t *line, const char *key, uint64_t value);
/* At most max bytes of value, percent-encoded; nothing if value is NULL or "" */
extern void gt_line_text(gt_line_t *line, const char *key, const char *value,
			 size_t max);
extern void gt_line_candidate(gt_line_t *line, const gt_candidate_t *node);
extern void gt_line_placed(gt_line_t *line, const char *name, uint64_t mask);

/* Text as it is, for values of several parts */
extern void gt_line_add(gt_line_t *line, const char *text);
extern void gt_line_add_hex(gt_line_t *line, uint64_t value);
extern void gt_line_add_decimal(gt_line_t *line, uint64_t value);
/* The same percent-encoded, and at most max bytes of it */
extern void gt_line_add_text(gt_line_t *line, const char *text, size_t max);
/* RET where at most n bytes may be written, of which `used` are then said; or NULL */
extern char *gt_line_room(gt_line_t *line, size_t n);
extern void gt_line_used(gt_line_t *line, size_t used);

/* Ends the line. RET false if it could not be built: nothing may be sent. */
extern bool gt_line_end(gt_line_t *line);
extern void gt_line_free(gt_line_t *line);

/*
 * Reads one reply line (without LF); it is decoded in place and must outlive
 * *reply. RET NULL, or what is wrong with it.
 */
extern const char *gt_reply_parse(char *line, gt_reply_t *reply);

/* The id= of a line without changing it; 0 if there is none. */
extern uint64_t gt_reply_id(const char *line);

/* Copies text as it may stand in a note: printable, no bracket, no bar. */
extern void gt_note_copy(char *note, size_t size, const char *text);
