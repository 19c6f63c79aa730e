#!/bin/bash
# cluster.sh: builds, starts and stops the containerised Slurm.
#   cluster.sh up               everything: engine, base image, images, containers; waits until all nodes are idle
#   cluster.sh backup up|down   the second controller host ctl2, beside a cluster that runs
#   cluster.sh images           only the images
#   cluster.sh pyslurm          PySlurm into the controller that runs; builds it where that is still to be done
#   cluster.sh builder CMD...   CMD in the builder image (Slurm source, gcc) with the checkout at /src
#   cluster.sh packages         Debian packages and RPMs of this checkout into .cluster/packages/SUITE
#   cluster.sh pocl             the image of a node with PoCL-Remote, which lends OpenCL devices: three minutes
#   cluster.sh site             the image of a host with the distribution's Slurm alone, on which the packages are tried
#   cluster.sh sanitize         slurmctld of a cluster that runs gets the select plugin under ASan and UBSan; for good
#   cluster.sh down             containers, network and volumes; the images stay
#   cluster.sh exec HOST CMD... | shell [HOST] | logs [HOST]
#   cluster.sh project | image NAME     what this checkout calls its cluster and the image NAME
#   cluster.sh clean            whatever this checkout brought onto the machine goes, a line for each
# Environment: GPUTOPO_CLUSTER (a file that says which nodes it has; default cluster.yaml beside this script), SUITE (trixie,
# bookworm, forky), GPUTOPO_PROJECT (default: this checkout's own), VARIANT (gputopo, stock, noop), GPUTOPO_PYTHON
# (default .venv/bin/python), GPUTOPO_CHECKOUT (another folder than the checkout's whose cluster this is: a project that tests with it),
# SLURM_PREFIX (a folder with an installed Slurm, used in place of Debian's) and SLURM_SRC (its source, for the select plugin),
# PYSLURM_WHEEL (PySlurm for that Slurm).
set -euo pipefail

here="$(cd "$(dirname "$0")" && pwd -P)"
# Where our packages are: a checkout, or Python's site-packages.
root="$(dirname "$here")"
home="${GPUTOPO_CHECKOUT:-$root}"
state="$home/.cluster"
# Two checkouts on one machine share nothing but the layers that are alike.
GPUTOPO_ID="gputopo-$(printf %s "$home" | { sha256sum 2>/dev/null || shasum -a 256; } | cut -c1-8)"
export GPUTOPO_ID GPUTOPO_CHECKOUT="$home" GPUTOPO_PYTHON="${GPUTOPO_PYTHON:-$root/.venv/bin/python}"
export SUITE="${SUITE:-trixie}" VARIANT="${VARIANT:-gputopo}"
# Behind the image's name: the Debian release, and the version of a Slurm that is not Debian's.
export TAG="$SUITE"
if [ -n "${SLURM_PREFIX:-}" ]; then
    number="$(sed -n 's/^#define SLURM_VERSION_NUMBER[[:space:]]*//p' "$SLURM_PREFIX/include/slurm/slurm_version.h" 2>/dev/null || true)"
    case "$SLURM_PREFIX ${SLURM_SRC:-/}" in *" /"*) ;; *) number="" ;; esac
    [ -n "$number" ] && [ "${SLURM_PREFIX#/}" != "$SLURM_PREFIX" ] || {
        echo "SLURM_PREFIX=$SLURM_PREFIX SLURM_SRC=${SLURM_SRC:-}: expected the full path of a folder with an installed Slurm" \
            "(include/slurm/slurm_version.h in it), and of its source or none" >&2
        exit 2
    }
    TAG="$SUITE-slurm-$(printf '%02d.%02d.%d' $((number >> 16)) $((number >> 8 & 255)) $((number & 255)))"
fi
export COMPOSE_PROJECT_NAME="${GPUTOPO_PROJECT:-$GPUTOPO_ID}"
# What python -m slurm_cluster.description makes of GPUTOPO_CLUSTER.
files="$state/$COMPOSE_PROJECT_NAME"
# One builder everywhere: the classic one; the Dockerfiles use nothing newer.
export DOCKER_BUILDKIT=0
# Seconds are counted from the start of the caller: `make demo` sets it.
export GPUTOPO_STARTED="${GPUTOPO_STARTED:-$(date +%s)}"

# Ctrl-C: one line, and the status that shells give to who ended by it.
interrupted() { trap - INT; printf '\ninterrupted\n' >&2; exit 130; }
trap interrupted INT

say() { printf '[%3d s] %s\n' $(($(date +%s) - GPUTOPO_STARTED)) "$1" >&2; }

compose() {
    local file="$files/compose.json"
    # Without it the hosts are not known by name, and are ended all the same.
    [ -e "$file" ] || file="$here/docker/docker-compose.yml"
    if docker compose version >/dev/null 2>&1; then docker compose -f "$file" "$@"
    else docker-compose -f "$file" "$@"; fi
}

image() { echo "$GPUTOPO_ID-$1:$TAG"; }

python() { PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" "$GPUTOPO_PYTHON" "$@"; }

make_state() {
    mkdir -p "$state"
    echo '*' >"$state/.gitignore"
}

# The project itself as the controller installs it: its sources, or from site-packages a wheel.
project() {
    local out="$state/project"
    rm -rf "$out"
    mkdir -p "$out"
    if [ -e "$root/setup.cfg" ]; then
        # 1: a folder changed while it was read, as where Python makes its __pycache__ there, which is left out.
        { tar -C "$root" -c --exclude=__pycache__ --exclude='*.so' --exclude='*.o' --exclude=build setup.cfg pyproject.toml README.md \
            LICENSE gres_topology policies simulation lua_bridge slurm_plugin || test $? = 1; } | tar -C "$out" -x
    else
        python -m slurm_cluster.wheel "$out"
    fi
}

context() { # context FILE: all that Dockerfile may COPY, as a tar, with what every image begins with
    local parts=(-C "$here/docker" image) made="$state/context-$1" without=(--exclude=__pycache__ --exclude='*.so' --exclude='*.o' --exclude=build)
    mkdir -p "$made"
    cat "$here/docker/Dockerfile.base" "$here/docker/$1" >"$made/Dockerfile"
    case "$1" in
        Dockerfile.packager) cp "$here/docker/$1" "$made/Dockerfile" ;;
        Dockerfile.slurm)
            cp "$here/docker/$1" "$made/Dockerfile"
            parts=(-C "$here/docker/image" use-slurm -C "$state/slurm" installed source) without=()
            ;;
        Dockerfile.pocl) parts+=(pocl) ;;
        Dockerfile) parts+=(-C "$state" project "wheels/$SUITE") ;;
        Dockerfile.builder)
            parts+=(pyslurm -C "$root" slurm_plugin/select slurm_plugin/spank slurm_plugin/node/carry)
            [ ! -e "$state/pyslurm/$SUITE" ] || parts+=(-C "$state" "pyslurm/$SUITE")
            ;;
    esac
    tar -c --owner=0 --group=0 "${without[@]}" -C "$made" Dockerfile "${parts[@]}"
}

build() { # build FILE TARGET WHAT [OPTION...]
    local log="$state/build-$2-$TAG.log" took="$state/took-$2-$TAG" began=$SECONDS
    say "image $2: $3$([ ! -e "$took" ] || echo ", $(cat "$took") s the last time it was built")"
    # The label comes last, so that checkouts share what is before it.
    context "$1" | docker build --force-rm --build-arg SUITE="$SUITE" --build-arg BUILDER="$(image builder)" \
        --label "gputopo.checkout=$home" --target "$2" -t "$(image "$2")" "${@:4}" - >"$log" 2>&1 ||
        { tail -25 "$log" >&2; echo "building the $2 image failed (see $log)" >&2; exit 1; }
    # Less is no build: every layer was there.
    [ $((SECONDS - began)) -lt 5 ] || echo $((SECONDS - began)) >"$took"
}

# Without what a site keeps to itself (etc), and what only linking and reading need.
own_slurm() {
    local copy="$state/slurm" origin="installed from $SLURM_PREFIX" target
    rm -rf "$copy"
    mkdir -p "$copy/installed" "$copy/source"
    tar -C "$SLURM_PREFIX" -c --exclude=./etc --exclude=./share --exclude='*.a' --exclude='*.la' . | tar -C "$copy/installed" -x
    if [ -n "${SLURM_SRC:-}" ]; then
        tar -C "$SLURM_SRC" -c --exclude='*.o' --exclude='*.lo' --exclude=.libs META src slurm | tar -C "$copy/source" -x
        origin="source $(cd "$copy/source" && find . -name '*.[ch]' -type f | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -c1-12)"
    fi
    for target in builder node controller; do
        build Dockerfile.slurm "$target" "${TAG#*-slurm-} of $SLURM_PREFIX" --build-arg SLURM_PREFIX="$SLURM_PREFIX" \
            --build-arg SLURM_ORIGIN="$origin" --build-arg DEBIAN_BUILDER="$GPUTOPO_ID-builder:$SUITE" \
            --build-arg DEBIAN_NODE="$GPUTOPO_ID-node:$SUITE" --build-arg DEBIAN_CONTROLLER="$GPUTOPO_ID-controller:$SUITE"
    done
    rm -rf "$copy"
}

# What every image needs; whoever called it ends with `flock -u 9`.
begin() {
    [ "$(uname -s)" = Linux ] || { echo "no container engine: the cluster in containers needs Linux, this is $(uname -s)" >&2; exit 3; }
    make_state
    # Two builds at once would each build everything.
    exec 9>"$state/build.lock"
    flock -n 9 || { say "another build of this checkout runs: waiting for it"; flock 9; }
    say "container engine"
    "$here/docker/ensure-engine.sh" 9>&- # a daemon that it starts must not hold the lock
    say "base image debian:$SUITE-slim"
    "$here/docker/base-image.sh" "$SUITE"
}

images() {
    begin
    "$here/docker/wheels.sh" "$SUITE"
    project
    local wanted="$TAG"
    TAG="$SUITE"
    build Dockerfile.builder base "what all begin with"
    # apt waits for the network and then unpacks on one core: two at a time.
    set -m # a process group of its own, to be ended with all its children
    build Dockerfile.builder builder "gcc, Slurm's source, our two plugins in C" &
    beside=$!
    set +m
    trap 'kill -- "-$beside" 2>/dev/null' EXIT
    build Dockerfile node "slurmd"
    build Dockerfile packages "slurmctld, slurmdbd, slurmrestd, MariaDB, Python"
    wait "$beside"
    trap - EXIT
    build Dockerfile controller "our files into it"
    TAG="$wanted"
    [ "$TAG" = "$SUITE" ] || own_slurm
    flock -u 9
}

# In a clean container, from what git does not ignore; packaging/build.sh is what runs there.
packages() {
    local out="$state/packages/$SUITE" made="$state/packages/context"
    begin
    build Dockerfile.builder base "what all begin with"
    build Dockerfile.builder builder "gcc, Slurm's source, our two plugins in C"
    build Dockerfile.packager packager "debhelper, lintian, rpm"
    local took="$state/took-packages-$SUITE" began=$SECONDS
    say "packages for $SUITE$([ ! -e "$took" ] || echo ", $(cat "$took") s the last time")"
    rm -rf "$out" "$made"
    trap 'rm -rf "$out" "$made"; interrupted' INT
    mkdir -p "$out" "$made/source"
    "$here/docker/wheels.sh" "$SUITE" vendored "$made/wheels"
    git -C "$root" ls-files -z --cached --others --exclude-standard | tar -C "$root" -c --null -T - --ignore-failed-read | tar -C "$made/source" -x
    tar -C "$made" -c --owner=0 --group=0 . | docker run --rm -i -e SOURCE_DATE_EPOCH="$(git -C "$root" log -1 --format=%ct)" \
        "$(image packager)" sh -c "tar -x && source/packaging/build.sh $SUITE >&2; ended=\$?
            tar -C out -c .; exit \$ended" | tar -C "$out" -x
    rm -rf "$made"
    trap interrupted INT
    echo $((SECONDS - began)) >"$took"
    flock -u 9
    ls "$out" | sed "s,^,$out/,"
}

site() {
    begin
    build Dockerfile.builder base "what all begin with"
    build Dockerfile.site site "slurmctld and slurmd, and in apt's cache what our packages depend on"
    flock -u 9
}

# No part of `images`: only the tests of lending with a real middleware run on it.
pocl() {
    images
    [ "$SUITE" != bookworm ] || { echo "PoCL of bookworm has no remote driver" >&2; exit 3; }
    build Dockerfile.pocl pocl "PoCL-Remote of Debian's source, three minutes" --build-arg NODE="$(image node)"
}

pyslurm_image() {
    exec 8>"$state/pyslurm-$SUITE.lock"
    flock 8
    "$here/docker/wheels.sh" "$SUITE" pyslurm
    build Dockerfile.builder pyslurm "PySlurm, two minutes and more"
    flock -u 8
}

pyslurm() {
    if [ "$TAG" = "$SUITE" ]; then
        pyslurm_image
        docker run --rm "$(image pyslurm)" tar -C /out -c . | in_host ctl sh -c 'mkdir -p /opt/pyslurm && tar -C /opt/pyslurm -x'
    elif [ -n "${PYSLURM_WHEEL:-}" ]; then
        in_host ctl sh -c "mkdir -p /opt/pyslurm && cat >/opt/pyslurm/${PYSLURM_WHEEL##*/} && echo 'PySlurm: built for Slurm ${TAG#*-slurm-}' >/opt/pyslurm/pyslurm.txt" <"$PYSLURM_WHEEL"
    else
        in_host ctl sh -c "mkdir -p /opt/pyslurm && echo 'PySlurm: not built: for a Slurm of your own PYSLURM_WHEEL names one' >/opt/pyslurm/pyslurm.txt"
    fi
    in_host ctl sh -c 'for wheel in /opt/pyslurm/*.whl; do
        [ ! -e "$wheel" ] || /opt/gputopo/bin/pip install -q --no-index --no-deps "$wheel"; done; cat /opt/pyslurm/pyslurm.txt'
}

container() { # container HOST: its id, also of one that does not run
    docker ps -aq --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME" --filter "label=com.docker.compose.service=$1"
}

in_host() { # in_host HOST CMD...
    local id
    id="$(container "$1")"
    [ -n "$id" ] || { echo "no container '$1' in project $COMPOSE_PROJECT_NAME (cluster.sh up starts it)" >&2; exit 1; }
    shift
    if [ -t 0 ] && [ -t 1 ]; then docker exec -it "$id" "$@"; else docker exec -i "$id" "$@"; fi
}

wait_idle() {
    local end=$((SECONDS + ${GPUTOPO_START_TIMEOUT_S:-120})) idle nodes
    nodes="$(wc -l <"$files/hosts")"
    # `until` hides failures of what it waits for, so a controller that died is looked for by itself.
    until idle="$(in_host ctl sinfo -h -N -p gpu -t idle -o %N 2>/dev/null | sort -u | wc -l)" && [ "$idle" = "$nodes" ]; do
        if [ "$SECONDS" -ge "$end" ] || [ -z "$(docker ps -q --filter "id=$(container ctl)")" ]; then
            echo "only ${idle:-0} of $nodes nodes became idle:" >&2
            in_host ctl sinfo -N -l >&2 || compose logs --tail 20 >&2
            exit 1
        fi
        sleep 0.5
    done
}

# Ends the script where containers of the project's name belong to another checkout.
check_ours() {
    local of="label=com.docker.compose.project=$COMPOSE_PROJECT_NAME" by='by={{.Label "gputopo.checkout"}}' other
    other="$({ docker ps -a --filter "$of" --format "$by"; docker volume ls --filter "$of" --format "$by"
        docker network ls --filter "$of" --format "$by"; } | grep -vxF "by=$home" | head -1 || true)"
    [ -z "$other" ] && return
    other="${other#by=}"
    echo "project '$COMPOSE_PROJECT_NAME' was started by ${other:-something else}, not by this checkout ($home): left alone" >&2
    exit 1
}

down() {
    check_ours
    # One after the other: Docker 20.10 locks up for good, with all that runs, where the last two
    # containers of a network leave it at the same time (libnetwork's processEndpointDelete, sbLeave).
    docker ps -aq --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME" | while read -r id; do
        docker rm -f -v "$id" || true
    done >/dev/null 2>&1
    compose --profile backup down -v --remove-orphans >/dev/null 2>&1
    rm -rf "$files"
}

# Writes $files; a cluster that has other nodes, or another Slurm whose state this one cannot read, goes first.
describe() {
    local new="$files.new" former
    rm -rf "$new"
    python -m slurm_cluster.description "${GPUTOPO_CLUSTER:-$here/cluster.yaml}" "$new" || exit 1
    former="$(docker inspect --format '{{.Config.Image}}' "$(container ctl)" 2>/dev/null || true)"
    # Volumes that a broken-off run left without containers hold another cluster's files.
    case "$former" in
        *:"$TAG") diff -rq "$files" "$new" >/dev/null 2>&1 || down ;;
        *) down ;;
    esac
    rm -rf "$files"
    mv "$new" "$files"
}

up() {
    images
    check_ours
    say "starting the cluster '$COMPOSE_PROJECT_NAME'"
    describe
    local log="$state/up-$COMPOSE_PROJECT_NAME.log"
    { compose up --no-start && docker cp "$files/image/." "$(container ctl):/usr/local/share/cluster/" && compose start; } >"$log" 2>&1 ||
        { cat "$log" >&2; exit 1; }
    wait_idle
    echo "cluster '$COMPOSE_PROJECT_NAME' is up: Slurm $(in_host ctl sinfo -V | cut -d' ' -f2), $(wc -l <"$files/hosts") nodes," \
        "variant $(in_host ctl clusterctl variant)"
    # What the image could not include is said, not buried in a build log.
    in_host ctl cat /usr/local/share/cluster/select-plugin.txt
}

sanitize() {
    local ctl out=.cluster/sanitized
    rm -rf "${root:?}/$out"
    docker run --rm -v "$root:/src" "$(image builder)" sh -c "mkdir -p $out &&
        make -sC slurm_plugin/select SANITIZE=1 OUT=/tmp/sanitized PLUGIN=/src/$out/select_cons_tres.so &&
        cp -L \$(gcc -print-file-name=libasan.so) $out/libasan.so.8 && cp -L \$(gcc -print-file-name=libubsan.so) $out/libubsan.so.1"
    ctl="$(container ctl)"
    docker cp "$root/$out/." "$ctl:/usr/local/lib/sanitized"
    in_host ctl clusterctl slurmctld restart
}

backup() {
    case "$1" in
        # Neither builds nor touches the containers that run.
        up) compose --profile backup up -d --no-deps --no-recreate ctl2 >/dev/null 2>&1 ;;
        down) compose --profile backup rm -sf ctl2 >/dev/null 2>&1 ;;
        *) echo "cluster.sh backup up|down" >&2; exit 2 ;;
    esac
}

case "${1:-}" in
    up) up ;;
    sanitize) sanitize ;;
    backup) backup "${2:-}" ;;
    images) images ;;
    pyslurm) pyslurm ;;
    packages) packages ;;
    site) site ;;
    pocl) pocl ;;
    builder) shift; docker run --rm -v "$root:/src" "$(image builder)" "$@" ;;
    down) down ;;
    project) echo "$COMPOSE_PROJECT_NAME" ;;
    image) image "$2" ;;
    clean) exec "$here/docker/clean.sh" ;;
    exec) shift; in_host "$@" ;;
    shell) in_host "${2:-ctl}" bash -l ;;
    logs) compose logs ${2:+"$2"} ;;
    *) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | grep -v '^set'; exit 2 ;;
esac; exit # on this line, lest a script that is edited while it runs is read on
