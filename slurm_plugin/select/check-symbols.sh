#!/bin/sh
# Fails if Slurm's list of select plugin functions names one we do not have.
set -eu
src=$1
list=$src/src/interfaces/select.c
[ -f "$list" ] || list=$src/src/common/select.c
missing=
for name in $(sed -n 's/^[[:space:]]*"select_p_\([a-z_]*\)".*/\1/p' "$list"); do
	grep -Eq "X\($name\)|select_p_$name\(" slurmctld/stock.h shim/select_cons_tres.c ||
		missing="$missing $name"
done
[ -z "$missing" ] || {
	echo "slurmctld/stock.h lacks select_p_ functions of this Slurm:$missing" >&2
	exit 1
}
