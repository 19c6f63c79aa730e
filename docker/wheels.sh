#!/bin/sh
# wheels.sh SUITE: puts the Python wheels the controller image needs into
# .cluster/wheels/SUITE. Done outside the build, because pip inside a container
# knows neither this machine's certificates nor its package index.
set -eu

suite="${1:?usage: wheels.sh trixie|bookworm|forky}"
here="$(cd "$(dirname "$0")/.." && pwd)"
out="$here/.cluster/wheels/$suite"
pip="${GPUTOPO_PIP:-$here/.venv/bin/pip}"

case "$suite" in
    bookworm) python=3.11 ;;
    trixie) python=3.13 ;;
    # forky's default Python still moves: ask the base image.
    *) python="$(docker run --rm "debian:$suite-slim" sh -c 'apt-get -qq -o Acquire::Check-Valid-Until=false update >/dev/null 2>&1;
        apt-cache policy python3 | sed -n "s/.*Candidate: \([0-9]*\.[0-9]*\).*/\1/p"')" ;;
esac

# The install_requires block of setup.cfg is the one list of dependencies.
requires="$(sed -n '/^install_requires *=/,/^[^ ]/s/^  *//p' "$here/setup.cfg")"
stamp="$(printf '%s\n%s\n' "$python" "$requires" | cksum)"
[ "$(cat "$out/.stamp" 2>/dev/null)" = "$stamp" ] && exit 0

rm -rf "$out"
mkdir -p "$out"
machine="$(uname -m)"
# shellcheck disable=SC2086 # one requirement per word
"$pip" download -q --only-binary=:all: --implementation cp --python-version "$python" \
    --platform "manylinux2014_$machine" --platform "manylinux_2_27_$machine" --platform "manylinux_2_28_$machine" \
    -d "$out" $requires setuptools wheel
echo "$stamp" >"$out/.stamp"
