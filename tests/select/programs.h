/* What pure_test does besides its claims. */
#ifndef GT_PROGRAMS_H
#define GT_PROGRAMS_H

#include <stdint.h>

/* Request lines, to compare with the other codecs. */
extern void print_lines(void);

/* What each reply line of standard input means. */
extern void print_replies(void);

/* The hint and the note of each comment on standard input, "-" for none. */
extern void print_brackets(void);

/* Mutated input for every parser. */
extern void fuzz(uint64_t seed, uint64_t rounds);

#endif
