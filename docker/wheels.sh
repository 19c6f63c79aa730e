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

machine="$(uname -m)"
wheels() { # wheels FOLDER REQUIREMENT...: for the suite's Python
    folder="$1"
    shift
    "$pip" download -q --only-binary=:all: --implementation cp --python-version "$python" \
        --platform "manylinux2014_$machine" --platform "manylinux_2_27_$machine" --platform "manylinux_2_28_$machine" \
        -d "$folder" "$@"
}

# PySlurm is built in the image, where there is a patch for its Slurm: here only what that needs.
pyslurm="$here/.cluster/pyslurm/$suite"
sources="pyslurm==25.11.2"
if [ "$(cat "$pyslurm/.stamp" 2>/dev/null)" != "$python $sources" ]; then
    rm -rf "$pyslurm"
    mkdir -p "$pyslurm"
    if [ "$suite" != trixie ] || {
        wheels "$pyslurm" 'cython>=3.1,<4' packaging setuptools wheel &&
            "$pip" download -q --no-deps --no-binary pyslurm -d "$pyslurm" "$sources"
    }; then
        echo "$python $sources" >"$pyslurm/.stamp"
    else
        echo "wheels.sh: PySlurm cannot be fetched; the image is built without it" >&2
    fi
fi

# The install_requires block of setup.cfg is the one list of dependencies.
requires="$(sed -n '/^install_requires *=/,/^[^ ]/s/^  *//p' "$here/setup.cfg")"
stamp="$(printf '%s\n%s\n' "$python" "$requires" | cksum)"
[ "$(cat "$out/.stamp" 2>/dev/null)" = "$stamp" ] && exit 0

rm -rf "$out"
mkdir -p "$out"
# shellcheck disable=SC2086 # one requirement per word
wheels "$out" $requires setuptools wheel
echo "$stamp" >"$out/.stamp"
