#!/bin/sh
# Makes sure a container engine answers: uses the one that runs, else installs
# Debian's and starts it in the background. Idempotent. Exit 3 when it cannot.
set -u

log_file="${GPUTOPO_DOCKERD_LOG:-/var/log/gputopo-dockerd.log}"

give_up() {
    echo "no container engine: $1" >&2
    exit 3
}

answers() { docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }
has_compose() { docker compose version >/dev/null 2>&1 || docker-compose version >/dev/null 2>&1; }

install_missing() {
    missing=""
    command -v docker >/dev/null 2>&1 || missing="$missing docker.io"
    if ! answers; then
        command -v dockerd >/dev/null 2>&1 || missing="$missing docker.io"
        command -v iptables >/dev/null 2>&1 || missing="$missing iptables"
    fi
    has_compose || missing="$missing docker-compose"
    command -v debootstrap >/dev/null 2>&1 || missing="$missing debootstrap"
    command -v curl >/dev/null 2>&1 || missing="$missing curl"
    [ -n "$missing" ] || return 0
    # debootstrap matters only where no registry answers: do not demand root for it alone.
    if [ "$(id -u)" != 0 ]; then
        [ "$missing" = " debootstrap" ] && return 0
        give_up "not root, and these packages are missing:$missing"
    fi
    command -v apt-get >/dev/null 2>&1 || give_up "install by hand, there is no apt-get here:$missing"
    apt-get update -qq >>"$log_file" 2>&1 || give_up "apt-get update failed (see $log_file)"
    # Since trixie the client is a package of its own; before, part of docker.io.
    case "$missing" in
        *docker.io*) apt-cache show docker-cli >/dev/null 2>&1 && missing="$missing docker-cli" ;;
    esac
    DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends $missing >>"$log_file" 2>&1 ||
        give_up "apt-get could not install$missing (see $log_file)"
}

start_daemon() {
    [ -z "${DOCKER_HOST:-}" ] || give_up "nothing answers at DOCKER_HOST=$DOCKER_HOST"
    [ "$(id -u)" = 0 ] || give_up "no daemon answers and only root can start one (sudo docker/ensure-engine.sh)"
    # Another caller may have started it a moment ago; dockerd's own pid file arbitrates.
    if ! pidof dockerd >/dev/null 2>&1; then
        # A daemon that was killed leaves its pid file behind.
        rm -f /var/run/docker.pid
        setsid nohup dockerd >>"$log_file" 2>&1 </dev/null &
    fi
    tries=0
    until answers; do
        tries=$((tries + 1))
        [ "$tries" -le 60 ] || give_up "dockerd did not answer within 60 s (see $log_file)"
        pidof dockerd >/dev/null 2>&1 || [ "$tries" -le 3 ] || give_up "dockerd stopped at once (see $log_file)"
        sleep 1
    done
}

install_missing
answers || start_daemon
has_compose || give_up "neither 'docker compose' nor 'docker-compose' is installed"
