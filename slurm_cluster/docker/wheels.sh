#!/bin/sh
# wheels.sh SUITE [pyslurm | vendored FOLDER]: puts the Python wheels the controller image needs into
# .cluster/wheels/SUITE, or what the PySlurm image needs into .cluster/pyslurm/SUITE, or what the
# packages vendor (packaging/vendored/SUITE.txt, with hashes) into a folder. Done outside the build, because pip inside a container knows neither this machine's certificates nor its package index.
set -eu

suite="${1:?usage: wheels.sh trixie|bookworm|forky}"
state="${GPUTOPO_CHECKOUT:?cluster.sh sets it}/.cluster"
out="$state/wheels/$suite"
python="${GPUTOPO_PYTHON:?cluster.sh sets it}"

case "$suite" in
    bookworm) version=3.11 ;;
    trixie) version=3.13 ;;
    # forky's default Python still moves: ask the base image.
    *) version="$(docker run --rm "debian:$suite-slim" sh -c 'apt-get -qq -o Acquire::Check-Valid-Until=false update >/dev/null 2>&1;
        apt-cache policy python3 | sed -n "s/.*Candidate: \([0-9]*\.[0-9]*\).*/\1/p"')" ;;
esac

# The kernel's name of a machine is not always the wheels' name of it.
machine="$(uname -m | sed 's/^arm64$/aarch64/; s/^amd64$/x86_64/')"
wheels() { # wheels REQUIREMENT...: for the suite's Python
    "$python" -m pip download -q --only-binary=:all: --implementation cp --python-version "$version" \
        --platform "manylinux2014_$machine" --platform "manylinux_2_27_$machine" --platform "manylinux_2_28_$machine" \
        -d "$out" "$@" 2>"$out.log" || {
        echo "no wheels for Python $version on $machine: $(sed -n 's/^ERROR: //p' "$out.log" | tail -1)" >&2
        return 1
    }
}

if [ "${2:-}" = vendored ]; then
    out="$3"
    list="$(dirname "$0")/../../packaging/vendored/$suite.txt"
    mkdir -p "$out"
    [ ! -e "$list" ] || wheels --no-deps --require-hashes -r "$list"
    rm -f "$out.log"
    exit
fi

# Where there is a patch for its Slurm.
if [ "${2:-}" = pyslurm ]; then
    out="$state/pyslurm/$suite"
    sources="pyslurm==25.11.2"
    [ "$(cat "$out/.stamp" 2>/dev/null)" = "$version $sources" ] && exit 0
    rm -rf "$out"
    mkdir -p "$out"
    if [ "$suite" = trixie ]; then
        # What cannot be had now is asked for again next time.
        { wheels 'cython>=3.1,<4' packaging setuptools wheel &&
            "$python" -m pip download -q --no-deps --no-binary pyslurm -d "$out" "$sources"; } ||
            { echo "wheels.sh: PySlurm cannot be fetched; its tests are skipped" >&2; sources=none; }
    fi
    echo "$version $sources" >"$out/.stamp"
    exit 0
fi

# What the installed project says that it requires, without the extras but for the page's.
requires="$("$python" -c 'from importlib.metadata import requires
parts = (one.replace(" ", "").partition(";") for one in requires("slurm-gputopo"))
print(*(name for name, _, extra in parts if extra in ("", "extra==\"web\"")))')"
stamp="$(printf '%s\n%s\n' "$version" "$requires" | cksum)"
[ "$(cat "$out/.stamp" 2>/dev/null)" = "$stamp" ] && exit 0

rm -rf "$out"
mkdir -p "$out"
# shellcheck disable=SC2086 # one requirement per word
wheels $requires setuptools wheel
echo "$stamp" >"$out/.stamp"
