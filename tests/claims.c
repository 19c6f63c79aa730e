#include "claims.h"

#include <fcntl.h>

char failed_at[400];

static claim_t *first, **last = &first;

extern void add_claim(claim_t *claim)
{
	*last = claim;
	last = &claim->next;
}

extern int open_descriptors(void)
{
	int count = 0;

	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) != -1;
	return count;
}

extern int run_claims(const char *only)
{
	int failures = 0, found = 0;

	for (claim_t *claim = first; claim; claim = claim->next) {
		if (only && strcmp(only, claim->name))
			continue;
		found = 1;
		failed_at[0] = '\0';
		claim->run();
		printf("%s %s%s%s\n", failed_at[0] ? "FAILED" : "ok", claim->name,
		       failed_at[0] ? ": " : "", failed_at);
		failures += failed_at[0] != '\0';
	}
	return failures || !found;
}
