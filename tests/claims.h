/*
 * Tests in C are claims: functions that hold, or say where they do not. Each file of
 * them ends with a table of its claims, and in that with an empty row.
 */
#ifndef GT_CLAIMS_H
#define GT_CLAIMS_H

#include <stdio.h>
#include <string.h>

typedef struct {
	const char *name;
	void (*run)(void);
} claim_t;

#define TEST(name) { #name, name }

/* Where the claim that runs does not hold: at its first check that failed. */
extern char failed_at[400];

#define CHECK(condition) \
	do { \
		if (!(condition) && !failed_at[0]) \
			snprintf(failed_at, sizeof(failed_at), "%s line %d: %s", \
				 __FILE__, __LINE__, #condition); \
	} while (0)

#define CHECK_TEXT(got, expected) \
	do { \
		const char *got_ = (got), *expected_ = (expected); \
		if (strcmp(got_, expected_) && !failed_at[0]) \
			snprintf(failed_at, sizeof(failed_at), \
				 "%s line %d: \"%.120s\" is not \"%.120s\"", \
				 __FILE__, __LINE__, got_, expected_); \
	} while (0)

/* The names, and all of them or one run; the tables end with NULL. */
extern void list_claims(const claim_t *const tables[]);

/* RET 0 if every claim held, and there was one */
extern int run_claims(const claim_t *const tables[], const char *only);

#endif
