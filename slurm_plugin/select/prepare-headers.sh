#!/bin/sh
# Writes the two generated headers that Slurm's own headers include, from the
# source tree alone: config.h and slurm/slurm_version.h. Existing ones are kept.
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
# slurmctld is built with aliases for its common names; the rest of config.h
# changes no structure that we use
[ -f "$build/config.h" ] || echo '#define USE_ALIAS 1' >"$build/config.h"
