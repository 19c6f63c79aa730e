#!/bin/bash
# clean.sh: removes what this checkout brought onto the machine, one line for each: its clusters and
# images, base images that it fetched, .cluster/, and the dockerd that it started. It removes only
# what has the label gputopo.checkout or a note under .cluster/; .venv stays, and so do packages
# that apt-get installed.
set -euo pipefail

home="${GPUTOPO_CHECKOUT:?cluster.sh sets it}"
notes="$home/.cluster"
ours="label=gputopo.checkout=$home"
said() { echo "removed $*"; }

clusters() {
    local project of='{{.Label "com.docker.compose.project"}}'
    { docker ps -a --filter "$ours" --format "$of"; docker volume ls --filter "$ours" --format "$of"
        docker network ls --filter "$ours" --format "$of"; } | sort -u | while read -r project; do
        [ -n "$project" ] || continue
        GPUTOPO_PROJECT="$project" "$(dirname "$0")/../cluster.sh" down </dev/null && said "cluster '$project'"
    done
    # Containers of no project: a builder that was broken off.
    docker ps -aq --filter "$ours" | xargs -r docker rm -f >/dev/null
}

images() {
    local names
    # A name at a time: what is built on another image goes with it, or keeps it.
    names="$(docker images --filter "$ours" --format '{{.Repository}}:{{.Tag}}' | grep -v '<none>' | sort || true)"
    [ -z "$names" ] || { xargs docker rmi <<<"$names" >/dev/null && said "images" $names; }
    names="$(docker images -q --filter dangling=true --filter "$ours")"
    [ -z "$names" ] || { xargs docker rmi <<<"$names" >/dev/null && said "$(wc -l <<<"$names") images that newer ones had replaced"; }
}

# A build that was broken off leaves its last step without a label, and perhaps the container of
# the next one: its log names both.
broken_off() {
    local log step
    for log in $(grep -L '^Successfully built' "$notes"/build-*.log 2>/dev/null); do
        sed -n 's/^ ---> Running in //p' "$log" | tail -1 | xargs -r docker rm -f >/dev/null 2>&1 || true
        step="$(sed -n 's/^ ---> \([0-9a-f]\{12\}\)$/\1/p' "$log" | tail -1)"
        docker images -q --filter dangling=true | grep -qxF "${step:-none}" || continue
        docker rmi "$step" >/dev/null 2>&1 && said "what a broken-off build had left (${log##*/})"
    done
}

base_images() {
    local image other
    [ -e "$notes/base-images" ] || return 0
    other="$(docker images --filter label=gputopo.checkout --format '{{.Repository}}:{{.Tag}}' | head -1)"
    sort -u "$notes/base-images" | while read -r image; do
        if [ -n "$other" ]; then echo "kept $image: $other of another checkout is built on it"
        else docker rmi "$image" >/dev/null && said "image $image"; fi
    done
}

# Rules and chains of Docker go, all others stay as they are.
firewall() {
    local tables
    for tables in iptables ip6tables; do
        "$tables-save" 2>/dev/null | grep -Ev 'DOCKER|docker0|br-[0-9a-f]{12}' | "$tables-restore" 2>/dev/null || true
    done
    [ -z "$forward" ] || iptables -P FORWARD "$forward"
    [ -z "$ip_forward" ] || echo "$ip_forward" >/proc/sys/net/ipv4/ip_forward
}

daemon() {
    local forward="" ip_forward="" log="" pid="" started="" left end
    [ -e "$notes/dockerd" ] || return 0
    # shellcheck source=/dev/null
    . "$notes/dockerd"
    [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ] && [ "$(cut -d' ' -f22 "/proc/$pid/stat")" = "$started" ] || return 0
    left="$(docker ps -a --format '{{.Names}}' | head -3 | tr '\n' ' ')"
    if [ -n "$left" ]; then
        echo "kept the dockerd that this checkout started (pid $pid): others have containers (${left% } ...)"
        kept_daemon=yes
        return
    fi
    kill "$pid"
    end=$((SECONDS + 30))
    # A zombie has no program any more: it has ended.
    while readlink "/proc/$pid/exe" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || { echo "dockerd (pid $pid) does not end within 30 s of SIGTERM" >&2; exit 1; }
        sleep 0.2
    done
    ip link delete docker0 2>/dev/null || true
    firewall
    rm -f "$log"
    said "the dockerd that this checkout started (pid $pid), docker0 and Docker's iptables rules; /var/lib/docker stays"
}

kept_daemon=""
if docker version >/dev/null 2>&1; then
    clusters
    images
    broken_off
    base_images
    daemon
fi
if [ -n "$kept_daemon" ]; then
    find "$notes" -mindepth 1 -maxdepth 1 ! -name dockerd -exec rm -rf {} +
    said "$notes, but for the note about dockerd"
elif [ -e "$notes" ]; then
    rm -rf "$notes"
    said "$notes"
fi
