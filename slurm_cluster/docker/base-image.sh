#!/bin/sh
# base-image.sh SUITE: makes the image debian:SUITE-slim present. Pulled where a
# registry answers, else built with debootstrap (needs root and a Debian mirror).
set -eu

suite="${1:?usage: base-image.sh trixie|bookworm|forky}"
image="debian:${suite}-slim"

docker image inspect "$image" >/dev/null 2>&1 && exit 0
# For clean.sh: what was not here before.
fetched() { echo "$image" >>"${GPUTOPO_CHECKOUT:?cluster.sh sets it}/.cluster/base-images"; }
timeout "${GPUTOPO_PULL_TIMEOUT_S:-45}" docker pull -q "$image" >/dev/null 2>&1 && fetched && exit 0

echo "no registry answered for $image: building it with debootstrap"
command -v debootstrap >/dev/null 2>&1 ||
    { echo "cannot pull $image, and debootstrap is not installed" >&2; exit 3; }

root="$(mktemp -d)"
chmod 755 "$root" # becomes the mode of / in the image
trap 'rm -rf "$root"' EXIT
# A release younger than this machine's debootstrap has no script of its own: it is built like sid.
if [ -e "/usr/share/debootstrap/scripts/$suite" ]; then script=""; else script=sid; fi
mirror="${GPUTOPO_MIRROR:-http://deb.debian.org/debian}"
# $script may be empty on purpose.
debootstrap --variant=minbase "$suite" "$root" "$mirror" $script >"$root.log" 2>&1 ||
    { tail -5 "$root.log" >&2; echo "debootstrap $suite failed (see $root.log)" >&2; exit 3; }
rm -f "$root.log" "$root"/var/cache/apt/archives/*.deb
tar -C "$root" -c . | docker import - "$image" >/dev/null
fetched
