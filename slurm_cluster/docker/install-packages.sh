#!/bin/sh
# install-packages.sh NAME...: Debian packages by apt-get, as root or by sudo; where that is not
# possible one line with what is missing, and exit 3.
set -eu

give_up() {
    echo "missing: $* (Debian's names); $why" >&2
    exit 3
}

if ! command -v apt-get >/dev/null 2>&1; then
    why="there is no apt-get here, install them by hand"
    give_up "$@"
fi
sudo=""
if [ "$(id -u)" != 0 ]; then
    sudo=sudo
    why="only root can install them, and there is no sudo here"
    command -v sudo >/dev/null 2>&1 || give_up "$@"
fi
why="apt-get could not install them"
{ $sudo apt-get update -qq && $sudo apt-get install -y -qq --no-install-recommends "$@"; } || give_up "$@"
