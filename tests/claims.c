#include "claims.h"

char failed_at[400];

extern void list_claims(const claim_t *const tables[])
{
	for (; *tables; tables++)
		for (const claim_t *claim = *tables; claim->name; claim++)
			puts(claim->name);
}

extern int run_claims(const claim_t *const tables[], const char *only)
{
	int failures = 0, found = 0;

	for (; *tables; tables++)
		for (const claim_t *claim = *tables; claim->name; claim++) {
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
