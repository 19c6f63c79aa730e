#include "hint.h"

#include <string.h>

static const char *past_blanks(const char *text, const char *end)
{
	while (text < end && *text == ' ')
		text++;
	return text;
}

static void take(const char *item, const char *end, gt_settings_t *settings)
{
	const char *equals = memchr(item, '=', (size_t) (end - item)), *value;
	size_t key, len;

	if (!equals)
		return;
	for (key = (size_t) (equals - item); key && item[key - 1] == ' ';)
		key--;
	value = past_blanks(equals + 1, end);
	for (len = (size_t) (end - value); len && value[len - 1] == ' ';)
		len--;
	if (key == 7 && !memcmp(item, "pattern", 7) && len && len < GT_NAME) {
		memcpy(settings->pattern, value, len);
		settings->pattern[len] = '\0';
	} else if (key == 4 && !memcmp(item, "bind", 4)) {
		gt_bind_parse(value, len, &settings->bind);
	} else if (key == 3 && !memcmp(item, "mem", 3)) {
		gt_mem_parse(value, len, &settings->mem);
	}
}

extern bool gt_hint_apply(const char *hint, gt_settings_t *settings)
{
	const char *end = hint + strlen(hint), *item = past_blanks(hint, end);

	while (end > item && end[-1] == ' ')
		end--;
	if (end - item == 3 && !memcmp(item, "off", 3))
		return false;
	while (item < end) {
		const char *comma = memchr(item, ',', (size_t) (end - item));
		const char *stop = comma ? comma : end;

		take(past_blanks(item, stop), stop, settings);
		item = comma ? comma + 1 : end;
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
		/* Brackets and bars delimit the records in which it is to stand. */
		if ((unsigned char) *hint > 0x7f || strchr("[]|", *hint))
			return "holds a character that no hint has; hints are printable ASCII without [, ] and |";
	}
	return NULL;
}
