#include "protocol.h"

#include "settings.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEX "0123456789abcdefABCDEF"
#define KEY_BYTES "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_."

/* ------------------------------------------------------------------ lines */

static bool reserve(gt_line_t *line, size_t more)
{
	size_t need = line->len + more + 1;
	char *grown;

	if (line->failed || need > GT_LINE_MAX) {
		line->failed = true;
		return false;
	}
	if (need <= line->size)
		return true;
	need = need < 4096 ? 4096 : need * 2;
	if (!(grown = realloc(line->text, need))) {
		line->failed = true;
		return false;
	}
	line->text = grown;
	line->size = need;
	return true;
}

static void append(gt_line_t *line, const char *text, size_t len)
{
	if (!reserve(line, len))
		return;
	memcpy(line->text + line->len, text, len);
	line->len += len;
	line->text[line->len] = '\0';
}

static void append_encoded(gt_line_t *line, const char *text, size_t max)
{
	static const char hex[] = "0123456789ABCDEF";

	for (size_t i = 0; i < max && text[i]; i++) {
		unsigned char c = (unsigned char) text[i];
		char code[3] = { '%', hex[c >> 4], hex[c & 15] };

		if (c < 0x21 || c > 0x7e || c == '%')
			append(line, code, 3);
		else
			append(line, text + i, 1);
	}
}

extern void gt_line_begin(gt_line_t *line, const char *verb)
{
	line->len = 0;
	line->failed = false;
	append(line, verb, strlen(verb));
}

__attribute__((format(printf, 2, 3)))
static void append_format(gt_line_t *line, const char *format, ...)
{
	char text[64];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	append(line, text, strlen(text));
}

extern void gt_line_number(gt_line_t *line, const char *key, uint64_t value)
{
	append_format(line, " %s=%" PRIu64, key, value);
}

extern void gt_line_hex(gt_line_t *line, const char *key, uint64_t value)
{
	append_format(line, " %s=%" PRIx64, key, value);
}

extern void gt_line_text(gt_line_t *line, const char *key, const char *value,
			 size_t max)
{
	if (!value || !value[0])
		return;
	append_format(line, " %s=", key);
	append_encoded(line, value, max);
}

extern void gt_line_candidate(gt_line_t *line, const gt_candidate_t *node)
{
	gt_line_text(line, "node", node->name, GT_NAME_MAX);
	append_format(line, "/%u/%" PRIx64 "/%" PRIx64 "/%u", node->total,
		      node->free, node->own, node->weight);
	if (!node->shares)
		return;
	append_format(line, "/%" PRIx64, node->shares->idle);
	for (uint32_t i = 0; i < node->shares->total; i++)
		append_format(line, "%c%" PRIu64, i ? ',' : '/',
			      node->shares->left[i]);
}

extern void gt_line_placed(gt_line_t *line, const char *name, uint64_t mask)
{
	gt_line_text(line, "node", name, GT_NAME_MAX);
	append_format(line, "/%" PRIx64, mask);
}

extern void gt_line_add(gt_line_t *line, const char *text)
{
	append(line, text, strlen(text));
}

/* Digits of a small base; printf is slow where there are thousands of numbers. */
static void add_digits(gt_line_t *line, uint64_t value, unsigned base)
{
	char digits[24], *first = digits + sizeof(digits);

	do
		*--first = "0123456789abcdef"[value % base];
	while (value /= base);
	append(line, first, (size_t) (digits + sizeof(digits) - first));
}

extern void gt_line_add_hex(gt_line_t *line, uint64_t value)
{
	add_digits(line, value, 16);
}

extern void gt_line_add_decimal(gt_line_t *line, uint64_t value)
{
	add_digits(line, value, 10);
}

extern void gt_line_add_text(gt_line_t *line, const char *text, size_t max)
{
	append_encoded(line, text, max);
}

extern char *gt_line_room(gt_line_t *line, size_t n)
{
	return reserve(line, n) ? line->text + line->len : NULL;
}

extern void gt_line_used(gt_line_t *line, size_t used)
{
	line->len += used;
	line->text[line->len] = '\0';
}

extern bool gt_line_end(gt_line_t *line)
{
	append(line, "\n", 1);
	return !line->failed;
}

extern void gt_line_free(gt_line_t *line)
{
	free(line->text);
	memset(line, 0, sizeof(*line));
}

/* ---------------------------------------------------------------- replies */

static bool read_hex(const char *text, uint64_t *value)
{
	size_t digits = strspn(text, HEX);

	*value = strtoull(text, NULL, 16);
	return digits && digits <= 16 && !text[digits];
}

/* Reads digits up to the first other byte. RET how many (0: none, too many) */
static size_t read_decimal(const char *text, uint64_t *value)
{
	size_t digits = strspn(text, "0123456789");

	*value = strtoull(text, NULL, 10);
	return digits <= 19 ? digits : 0;
}

static bool read_number(const char *text, uint64_t *value)
{
	size_t n = read_decimal(text, value);

	return n && !text[n];
}

/* Percent-decodes value in place. */
static bool decode(char *value)
{
	char *out = value;

	for (char *in = value; *in; in++) {
		if (*in < 0x21 || *in > 0x7e)
			return false;
		*out = *in;
		if (*in == '%') {
			if (strspn(in + 1, HEX) < 2)
				return false;
			*out = (char) strtoul((char[]) { in[1], in[2], 0 }, NULL,
					      16);
			in += 2;
		}
		if (!*out++)
			return false;
	}
	*out = '\0';
	return true;
}

extern void gt_note_copy(char *note, size_t size, const char *text)
{
	size_t n = 0;

	for (; text && text[n] && n + 1 < size; n++) {
		unsigned char c = (unsigned char) text[n];
		bool plain = c >= 0x20 && c < 0x7f && !strchr("[]|", c);

		note[n] = plain ? (char) c : ' ';
	}
	note[n] = '\0';
}

static const char *take_pick(char *value, gt_pick_t *picks, size_t *count)
{
	char *slash = strrchr(value, '/');

	if (*count >= GT_PICKS_MAX)
		return "too many nodes";
	if (!slash || slash == value)
		return "a node without NAME/MASK";
	*slash = '\0';
	if (!read_hex(slash + 1, &picks[*count].mask) || !picks[*count].mask)
		return "a mask that is empty or not hexadecimal";
	picks[(*count)++].name = value;
	return NULL;
}

static bool read_wait(const char *text, uint32_t *seconds)
{
	uint64_t value;

	if (!read_number(text, &value) || !value || value > GT_WAIT_MAX_S)
		return false;
	*seconds = (uint32_t) value;
	return true;
}

static const char *take_flag(const char *key, const char *value,
			     gt_reply_t *reply, unsigned *bit)
{
	if (!strcmp(key, "quiet")) {
		*bit = 16;
		reply->quiet = !strcmp(value, "1");
	} else if (!strcmp(key, "resync")) {
		*bit = 32;
		reply->resync = !strcmp(value, "1");
	} else if (!strcmp(key, "digest")) {
		*bit = 64;
		reply->has_digest = read_hex(value, &reply->digest);
		if (!reply->has_digest)
			return "a digest that is not hexadecimal";
	}
	return NULL;
}

/* `seen` has one bit per key that may stand only once. */
static const char *take_field(const char *key, char *value, gt_reply_t *reply,
			      unsigned *seen)
{
	const char *wrong;
	unsigned bit = 0;

	if (!strcmp(key, "node"))
		return take_pick(value, reply->picks, &reply->pick_count);
	if (!strcmp(key, "alt"))
		return take_pick(value, reply->alts, &reply->alt_count);
	if (!strcmp(key, "id")) {
		bit = 1;
		if (!read_number(value, &reply->id))
			return "an id that is not a number";
	} else if (!strcmp(key, "s")) {
		bit = 2;
		if (!read_wait(value, &reply->wait_s))
			return "a wait that is not 1 second to 7 days";
	} else if (!strcmp(key, "max_wait_s")) {
		bit = 8;
		if (!read_wait(value, &reply->max_wait_s))
			return "a max_wait_s that is not 1 second to 7 days";
	} else if (!strcmp(key, "note") || !strcmp(key, "message")) {
		bit = 4;
		gt_note_copy(reply->note, sizeof(reply->note), value);
	} else if ((wrong = take_flag(key, value, reply, &bit))) {
		return wrong;
	}
	/* a key of a later protocol is ignored */
	if (*seen & bit)
		return "a key given twice";
	*seen |= bit;
	return NULL;
}

static bool read_verb(const char *verb, gt_reply_kind_t *kind)
{
	static const char *const verbs[] = {
		[GT_REPLY_USE] = "use", [GT_REPLY_WAIT] = "wait",
		[GT_REPLY_PASS] = "pass", [GT_REPLY_ERROR] = "error",
		[GT_REPLY_OK] = "ok",
	};

	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (!strcmp(verb, verbs[i])) {
			*kind = (gt_reply_kind_t) i;
			return true;
		}
	return false;
}

static const char *complete(const gt_reply_t *reply, unsigned seen)
{
	if (!(seen & 1))
		return "no id";
	if (reply->kind == GT_REPLY_USE && !reply->pick_count)
		return "use without a node";
	if (reply->kind == GT_REPLY_WAIT && !reply->wait_s)
		return "wait without s";
	return NULL;
}

extern const char *gt_reply_parse(char *line, gt_reply_t *reply)
{
	unsigned seen = 0;
	const char *wrong;
	char *save = NULL, *token = strtok_r(line, " ", &save);

	reply->id = 0;
	reply->wait_s = reply->max_wait_s = 0;
	reply->note[0] = '\0';
	reply->quiet = reply->resync = reply->has_digest = false;
	reply->pick_count = reply->alt_count = 0;
	if (!token || !read_verb(token, &reply->kind))
		return "an unknown verb";
	while ((token = strtok_r(NULL, " ", &save))) {
		char *value = token + strspn(token, KEY_BYTES);

		if (value == token || *value != '=')
			return "a field that is not key=value";
		*value++ = '\0';
		if (!decode(value))
			return "a value that is not printable or badly encoded";
		if ((wrong = take_field(token, value, reply, &seen)))
			return wrong;
	}
	return complete(reply, seen);
}

extern uint64_t gt_reply_id(const char *line)
{
	const char *field = strstr(line, " id=");
	uint64_t id = 0;

	if (!field || !read_decimal(field + 4, &id))
		return 0;
	return id;
}
