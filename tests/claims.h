/* Tests in C are claims: functions whose checks all pass. */
#pragma once

#include <stdio.h>
#include <string.h>

typedef struct claim {
	const char *name;
	void (*run)(void);
	struct claim *next;
} claim_t;

/* CLAIM(what_holds) { CHECK(...); } is one of the program's claims. */
#define CLAIM(name) \
	static void name(void); \
	__attribute__((constructor)) static void add_##name(void) \
	{ \
		static claim_t claim = { #name, name, NULL }; \
		add_claim(&claim); \
	} \
	static void name(void)

/* The first check that failed in the claim that runs */
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

extern void add_claim(claim_t *claim);

/* How many descriptors below 256 this process holds */
extern int open_descriptors(void);

/* Prints "ok CLAIM" or "FAILED CLAIM: where" for one claim, or all (NULL). RET 0 if all held */
extern int run_claims(const char *only);
