/*
 * Tests of the select plugin's part without Slurm: X_test.c holds the claims about X.c.
 *   pure_test            all, "ok CLAIM" or "FAILED CLAIM: where"
 *   pure_test list       the claims
 *   pure_test run CLAIM  one
 *   pure_test lines | replies | brackets | fuzz SEED ROUNDS   see programs.h
 */
#include <stdlib.h>
#include <string.h>

#include "../claims.h"
#include "programs.h"

extern const claim_t admin_comment_claims[], budget_claims[], kill_switch_claims[],
	mig_claims[], protocol_claims[], rpc_claims[], settings_claims[], stats_claims[],
	wait_times_claims[];

static const claim_t *const claims[] = {
	admin_comment_claims,
	budget_claims,
	kill_switch_claims,
	mig_claims,
	protocol_claims,
	rpc_claims,
	settings_claims,
	stats_claims,
	wait_times_claims,
	NULL,
};

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "list"))
		list_claims(claims);
	else if (!strcmp(what, "run") && argc == 3)
		return run_claims(claims, argv[2]);
	else if (!strcmp(what, "lines"))
		print_lines();
	else if (!strcmp(what, "replies"))
		print_replies();
	else if (!strcmp(what, "brackets"))
		print_brackets();
	else if (!strcmp(what, "fuzz") && argc == 4)
		fuzz(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
	else
		return run_claims(claims, NULL);
	return 0;
}
