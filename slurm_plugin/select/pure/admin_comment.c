#define _GNU_SOURCE
#include "admin_comment.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPEN "[gpu-topo:"
#define PREFIX "gpu-topo:"
#define BRACKET_MAX 1536
#define HINT_MAX 1024
#define WHY_MAX 200

static gt_slice_t slice(const char *text, const char *end)
{
	return (gt_slice_t) { text, (size_t) (end - text) };
}

static gt_slice_t trim(gt_slice_t s)
{
	while (s.len && s.text[0] == ' ') {
		s.text++;
		s.len--;
	}
	while (s.len && s.text[s.len - 1] == ' ')
		s.len--;
	return s;
}

/* RET true if "[...]" from `open` to `close` is our bracket */
static bool is_ours(const char *open, const char *close)
{
	if (strncmp(open, OPEN, strlen(OPEN)) || close - open >= BRACKET_MAX)
		return false;
	for (; open < close; open++)
		if ((unsigned char) *open < ' ' || *open == 0x7f)
			return false;
	return true;
}

/*
 * RET true with our bracket: the last one that stands outside of every other bracket and
 * has none inside. *is_closed: every bracket of the text is closed
 */
static bool find(const char *text, const char **open, const char **close,
		 bool *is_closed)
{
	const char *start = NULL;
	bool nested = false, found = false;
	size_t depth = 0;

	for (; *text; text++) {
		if (*text == '[') {
			nested = depth++ > 0;
			start = nested ? start : text;
		} else if (*text == ']' && depth && !--depth && !nested &&
			   is_ours(start, text)) {
			*open = start;
			*close = text;
			found = true;
		}
	}
	*is_closed = !depth;
	return found;
}

extern void gt_bracket_read(const char *comment, gt_bracket_t *bracket)
{
	const char *text = comment ? comment : "", *end = text + strlen(text);
	const char *open, *close, *inside, *bar;
	bool is_closed;

	memset(bracket, 0, sizeof(*bracket));
	bracket->hint = bracket->note = slice(end, end);
	bracket->before = slice(text, end);
	bracket->after = slice(end, end);
	if (!find(text, &open, &close, &is_closed)) {
		/* behind a bracket that is never closed ours would not count */
		if (!is_closed) {
			bracket->before = slice(text, text);
			bracket->after = slice(text, end);
		}
		return;
	}
	inside = open + strlen(OPEN);
	bar = memchr(inside, '|', (size_t) (close - inside));
	bracket->found = true;
	bracket->before = slice(text, open);
	bracket->hint = trim(slice(inside, bar ? bar : close));
	if (bar)
		bracket->note = trim(slice(bar + 1, close));
	bracket->after = slice(close + 1, end);
}

extern gt_slice_t gt_hint(const char *admin_comment, const char *comment)
{
	size_t skip = strlen(PREFIX);
	gt_bracket_t bracket;

	gt_bracket_read(admin_comment, &bracket);
	if (bracket.found || !comment || strncmp(comment, PREFIX, skip))
		return bracket.hint;
	return trim(slice(comment + skip, comment + strlen(comment)));
}

/* A hint from a user's comment may hold bytes that would end the bracket. */
static void clean(char *hint, size_t len)
{
	for (; len; len--, hint++)
		if ((unsigned char) *hint < ' ' || (unsigned char) *hint > '~' ||
		    strchr("[]|", *hint))
			*hint = ' ';
}

extern char *gt_bracket_write(const char *comment, gt_slice_t hint,
			      const char *note)
{
	gt_bracket_t old;
	bool has_note = note && note[0];
	const char *before, *after;
	char *out;

	/* no bridge has checked it, and a bracket that is too long is none of ours */
	if (hint.len > HINT_MAX)
		hint.len = 0;
	gt_bracket_read(comment, &old);
	before = !old.found && old.before.len &&
		 old.before.text[old.before.len - 1] != ' ' ? " " : "";
	after = !old.found && old.after.len ? " " : "";
	if (asprintf(&out, "%.*s%s" OPEN "%s%.*s%s%s]%s%s", (int) old.before.len,
		     old.before.text, before, hint.len ? " " : "",
		     (int) hint.len, hint.text, has_note ? " | " : "",
		     has_note ? note : "", after, old.after.text) < 0)
		return NULL;
	if (hint.len)
		clean(out + old.before.len + strlen(before) + strlen(OPEN) + 1,
		      hint.len);
	return out;
}

extern char *gt_bracket_remove(const char *comment)
{
	gt_bracket_t old;
	char *out;

	gt_bracket_read(comment, &old);
	if (!old.found)
		return strdup(comment ? comment : "");
	old.before = trim(old.before);
	old.after = trim(old.after);
	if (asprintf(&out, "%.*s%s%.*s", (int) old.before.len, old.before.text,
		     old.before.len && old.after.len ? " " : "",
		     (int) old.after.len, old.after.text) < 0)
		return NULL;
	return out;
}

extern gt_slice_t gt_hint_of_option(const char *variable)
{
	/* Slurm writes "_" for what is no letter or digit in an option's name */
	static const char *const names[] = {
		"_SLURM_SPANK_OPTION_gputopo_gpu_topo=",
		"_SLURM_SPANK_OPTION_gputopo_gpu-topo=",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(variable, names[i], strlen(names[i]))) {
			variable += strlen(names[i]);
			return trim(slice(variable,
					  variable + strlen(variable)));
		}
	return (gt_slice_t) { variable, 0 };
}

extern void gt_waiting_write(char *note, size_t size,
			     const gt_waiting_t *waiting)
{
	size_t len = waiting->why.len < WHY_MAX ? waiting->why.len : WHY_MAX;

	snprintf(note, size,
		 "waiting %u/%u since %" PRId64 ": %.*s (until %" PRId64
		 ", begin %" PRId64 ")",
		 waiting->count, waiting->cap, waiting->since, (int) len,
		 waiting->why.text, waiting->until, waiting->begin);
}

extern bool gt_waiting_read(gt_slice_t note, gt_waiting_t *waiting)
{
	char text[512];
	const char *tail;
	int end = 0;

	memset(waiting, 0, sizeof(*waiting));
	if (!note.len || note.len >= sizeof(text))
		return false;
	memcpy(text, note.text, note.len);
	text[note.len] = '\0';
	/* widths: a number that someone made huge must not overflow */
	if (sscanf(text, "waiting %9" SCNu32 "/%9" SCNu32 " since %18" SCNd64
		   ":%n", &waiting->count, &waiting->cap, &waiting->since,
		   &end) != 3 || !end) {
		memset(waiting, 0, sizeof(*waiting));
		return false;
	}
	if (!(tail = strrchr(text + end, '(')) ||
	    sscanf(tail, "(until %18" SCNd64 ", begin %18" SCNd64 ")",
		   &waiting->until, &waiting->begin) != 2) {
		waiting->until = waiting->begin = 0;
		tail = text + note.len;
	}
	waiting->why = trim(slice(note.text + end, note.text + (tail - text)));
	return true;
}
