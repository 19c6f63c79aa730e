#!/bin/sh
# Writes the two generated headers that Slurm's own headers include, from the
# source tree alone: config.h and slurm/slurm_version.h. Existing ones are kept,
# but must be of the tree's release: a plugin compiled from one release's records
# under another's version number would be loaded, and would misread every job.
set -eu
src=$1
build=$2
[ -n "$src" ] && [ -f "$src/META" ] || {
	echo "SLURM_SRC=$src: expected Slurm's source tree (no META there);" \
		"unpack the orig tarball of the release that runs" >&2
	exit 1
}
mkdir -p "$build/slurm"
field() { sed -n "s/^[[:space:]]*$1:[[:space:]]*//p" "$src/META" | head -n 1; }
major=$(field Major) minor=$(field Minor) micro=$(field Micro)
number=$(printf '0x%02x%02x%02x' "${major#0}" "${minor#0}" "${micro#0}")
header=$build/slurm/slurm_version.h
[ -f "$header" ] ||
	sed "s/^#undef SLURM_VERSION_NUMBER/#define SLURM_VERSION_NUMBER $number/" \
		"$src/slurm/slurm_version.h.in" >"$header"
found=$(sed -n 's/^#define SLURM_VERSION_NUMBER[[:space:]]*//p' "$header")
[ "$((${found:-0}))" = "$((number))" ] || {
	echo "$header: version ${found:-missing}, but $src/META says $number" \
		"($major.$minor.$micro): SLURM_SRC must be the source of the very" \
		"release that runs; a header of an earlier build goes by 'make clean'" >&2
	exit 1
}
# slurmctld is built with aliases for its common names; the rest of config.h
# changes no structure that we use
[ -f "$build/config.h" ] || echo '#define USE_ALIAS 1' >"$build/config.h"
