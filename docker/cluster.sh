#!/bin/bash
# cluster.sh: builds, starts and stops the containerised Slurm.
#   cluster.sh up               everything: engine, base image, images, containers; waits until all nodes are idle
#   cluster.sh backup up|down   the second controller host ctl2, beside a cluster that runs
#   cluster.sh images           only the images
#   cluster.sh builder CMD...   CMD in the builder image (Slurm source, gcc) with the checkout at /src
#   cluster.sh down             containers, network and volumes; the images stay
#   cluster.sh exec HOST CMD... | shell [HOST] | logs [HOST]
# Environment: SUITE (trixie, bookworm, forky), GPUTOPO_PROJECT (default gputopo), VARIANT (gputopo, stock, noop).
set -euo pipefail

root="$(cd "$(dirname "$0")/.." && pwd)"
export SUITE="${SUITE:-trixie}" VARIANT="${VARIANT:-gputopo}"
export COMPOSE_PROJECT_NAME="${GPUTOPO_PROJECT:-gputopo}"
# One builder everywhere: the classic one; the Dockerfile uses nothing newer.
export DOCKER_BUILDKIT=0
nodes=5

compose() {
    if docker compose version >/dev/null 2>&1; then docker compose -f "$root/docker-compose.yml" "$@"
    else docker-compose -f "$root/docker-compose.yml" "$@"; fi
}

build() { # build TARGET
    docker build -f "$root/docker/Dockerfile" --build-arg SUITE="$SUITE" --target "$1" \
        -t "slurm-gputopo-$1:$SUITE" "$root" >"$log" 2>&1 ||
        { tail -25 "$log" >&2; echo "building the $1 image failed (see $log)" >&2; exit 1; }
}

images() {
    mkdir -p "$root/.cluster"
    log="$root/.cluster/build-$SUITE.log"
    # Two builds at once would each build everything.
    exec 9>"$root/.cluster/build.lock"
    flock 9
    "$root/docker/ensure-engine.sh"
    "$root/docker/base-image.sh" "$SUITE"
    "$root/docker/wheels.sh" "$SUITE"
    for target in node builder controller; do build "$target"; done
    flock -u 9
}

in_host() { # in_host HOST CMD...
    local id
    id="$(compose ps -q "$1")"
    [ -n "$id" ] || { echo "no container '$1' in project $COMPOSE_PROJECT_NAME (cluster.sh up starts it)" >&2; exit 1; }
    shift
    if [ -t 0 ] && [ -t 1 ]; then docker exec -it "$id" "$@"; else docker exec -i "$id" "$@"; fi
}

wait_idle() {
    local end=$((SECONDS + ${GPUTOPO_START_TIMEOUT_S:-120})) idle
    # `until` hides failures of what it waits for, so a controller that died is looked for by itself.
    until idle="$(in_host ctl sinfo -h -N -p gpu -t idle -o %N 2>/dev/null | sort -u | wc -l)" && [ "$idle" = "$nodes" ]; do
        if [ "$SECONDS" -ge "$end" ] || [ -z "$(docker ps -q --filter "id=$(compose ps -q ctl)")" ]; then
            echo "only ${idle:-0} of $nodes nodes became idle:" >&2
            in_host ctl sinfo -N -l >&2 || compose logs --tail 20 >&2
            exit 1
        fi
        sleep 0.5
    done
}

down() { compose --profile backup down -v --remove-orphans -t 2 >/dev/null 2>&1; }

up() {
    images
    local former
    # One Slurm release cannot read another's state: a project that changes its release starts anew.
    former="$(docker ps -a --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME" \
        --filter label=com.docker.compose.service=ctl --format '{{.Image}}')"
    # Volumes that a broken-off run left without containers hold another cluster's files.
    case "$former" in *:"$SUITE") ;; *) down ;; esac
    compose up -d >"$root/.cluster/up-$COMPOSE_PROJECT_NAME.log" 2>&1 ||
        { cat "$root/.cluster/up-$COMPOSE_PROJECT_NAME.log" >&2; exit 1; }
    wait_idle
    echo "cluster '$COMPOSE_PROJECT_NAME' is up: Slurm $(in_host ctl sinfo -V | cut -d' ' -f2), $nodes nodes, variant $(in_host ctl clusterctl variant)"
    # What the image could not include is said, not buried in a build log.
    in_host ctl cat /usr/local/share/cluster/select-plugin.txt /opt/pyslurm/pyslurm.txt
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
    backup) backup "${2:-}" ;;
    images) images ;;
    builder) shift; docker run --rm -v "$root:/src" "slurm-gputopo-builder:$SUITE" "$@" ;;
    down) down ;;
    exec) shift; in_host "$@" ;;
    shell) in_host "${2:-ctl}" bash -l ;;
    logs) compose logs ${2:+"$2"} ;;
    *) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | grep -v '^set'; exit 2 ;;
esac
