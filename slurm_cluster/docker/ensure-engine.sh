#!/bin/sh
# Makes sure a container engine answers: uses the one that runs, else installs
# Debian's and starts it in the background. Idempotent. Exit 3 when it cannot, with one line.
set -u

state="${GPUTOPO_CHECKOUT:-$(cd "$(dirname "$0")/../.." && pwd -P)}/.cluster"
log_file="${GPUTOPO_DOCKERD_LOG:-/var/log/gputopo-dockerd.log}"

give_up() {
    echo "no container engine: $1" >&2
    exit 3
}

answers() { docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }
has_compose() { docker compose version >/dev/null 2>&1 || docker-compose version >/dev/null 2>&1; }

# One that runs and refuses us needs no package.
check_rights() {
    case "$(docker version 2>&1 >/dev/null)" in
        *"permission denied"*) give_up "one runs, but user $(id -un) may not use it: sudo usermod -aG docker $(id -un) and log in anew, or run this as root" ;;
    esac
}

install_missing() {
    missing=""
    command -v docker >/dev/null 2>&1 || missing=" docker.io"
    # Others cannot start a daemon, nor have its programs on their PATH.
    if [ "$(id -u)" = 0 ] && ! answers; then
        command -v dockerd >/dev/null 2>&1 || missing=" docker.io"
        command -v iptables >/dev/null 2>&1 || missing="$missing iptables"
    fi
    has_compose || missing="$missing docker-compose"
    command -v debootstrap >/dev/null 2>&1 || missing="$missing debootstrap"
    command -v curl >/dev/null 2>&1 || missing="$missing curl"
    # debootstrap and curl matter only where no registry answers: nothing is demanded for them alone.
    case "$missing" in *docker* | *iptables*) demanded=yes ;; *) demanded="" ;; esac
    [ -n "$missing" ] || return 0
    if ! command -v apt-get >/dev/null 2>&1; then
        [ -n "$demanded" ] || return 0
        give_up "there is no apt-get here: install and start Docker with compose (Debian calls them$missing)"
    fi
    if [ "$(id -u)" != 0 ]; then
        [ -n "$demanded" ] || return 0
        give_up "these packages are missing, and only root can install them:$missing"
    fi
    apt-get update -qq >>"$log_file" 2>&1 || give_up "apt-get update failed (see $log_file)"
    # Since trixie the client is a package of its own; before, part of docker.io.
    case "$missing" in
        *docker.io*) apt-cache show docker-cli >/dev/null 2>&1 && missing="$missing docker-cli" ;;
    esac
    DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends $missing >>"$log_file" 2>&1 ||
        give_up "apt-get could not install$missing (see $log_file)"
}

# For clean.sh: whose daemon it is, and what it changes in the kernel's settings.
note_started() {
    mkdir -p "$state"
    {
        echo "forward=$(iptables -S FORWARD 2>/dev/null | sed -n 's/^-P FORWARD //p')"
        echo "ip_forward=$(cat /proc/sys/net/ipv4/ip_forward)"
        echo "log=$log_file"
    } >"$state/dockerd"
}

start_daemon() {
    [ -z "${DOCKER_HOST:-}" ] || give_up "nothing answers at DOCKER_HOST=$DOCKER_HOST"
    [ "$(id -u)" = 0 ] || give_up "no daemon answers and only root can start one (sudo $0)"
    # Another caller may have started it a moment ago; dockerd's own pid file arbitrates.
    if ! pidof dockerd >/dev/null 2>&1; then
        # A daemon that was killed leaves its pid file behind.
        rm -f /var/run/docker.pid
        note_started
        setsid nohup dockerd >>"$log_file" 2>&1 </dev/null &
        # A pid alone may be another process's, later.
        echo "pid=$! started=$(cut -d' ' -f22 "/proc/$!/stat")" >>"$state/dockerd"
    fi
    tries=0
    until answers; do
        tries=$((tries + 1))
        [ "$tries" -le 60 ] || give_up "dockerd did not answer within 60 s (see $log_file)"
        pidof dockerd >/dev/null 2>&1 || [ "$tries" -le 3 ] || give_up "dockerd stopped at once (see $log_file)"
        sleep 1
    done
}

# What is there every time but the first is not looked for twice.
answers && has_compose && command -v debootstrap >/dev/null 2>&1 && exit 0
answers || check_rights
install_missing
answers || start_daemon
has_compose || give_up "neither 'docker compose' nor 'docker-compose' is installed"
