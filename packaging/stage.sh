#!/bin/sh
# stage.sh FOLDER: puts the files of every package below FOLDER/PACKAGE, where they will be on a
# host. The Debian packages and the RPMs both have their file lists from here. Run in the root of
# the source tree.
#   UNITDIR      where systemd's units go (usr/lib/systemd/system)
#   WHEELS       a folder of Python wheels to vendor, or of none
#   SLURM_SRC, SLURM_BUILD   Slurm's source, for the select plugin; without it there is none
set -eu

out="${1:?usage: stage.sh FOLDER}"
home=usr/lib/slurm-gputopo
units="${UNITDIR:-usr/lib/systemd/system}"
units="${units#/}"

# What pip would install of our packages, without what is for testing and compiling.
python_root() {
    root="$out/slurm-gputopo/$home"
    mkdir -p "$root"
    pip="python3 -m pip --disable-pip-version-check install -q --no-deps --no-compile --root-user-action=ignore"
    $pip --no-build-isolation --target "$root" .
    for wheel in "$WHEELS"/*.whl; do
        [ ! -e "$wheel" ] || $pip --no-index --target "$root/vendor" "$wheel"
    done
    rm -rf "$root/bin" "$root/slurm_cluster" "$root/slurm_plugin/select" "$root/slurm_plugin/spank" "$root/slurm_plugin/node/carry" "$root/slurm_plugin/serve/systemd"
    # Prometheus and Grafana look for these elsewhere (docs/metrics.md).
    mkdir -p "$out/slurm-gputopo/usr/share"
    mv "$root/slurm_plugin/tell/monitoring" "$out/slurm-gputopo/usr/share/gputopo"
    # importlib.metadata needs no more than METADATA; licences of what is vendored stay.
    find "$root" -path '*.dist-info/*' -type f ! -name METADATA ! -name 'LICEN*' -delete
    rm -rf "$root"/slurm_gputopo-*.dist-info/LICENSE "$root"/slurm_gputopo-*.dist-info/licenses
    chmod 755 "$root/lua_bridge/epilog-slurmctld"
}

engine() {
    to="$out/slurm-gputopo"
    python_root
    install -D -m 755 packaging/bin/gputopo "$to/usr/bin/gputopo"
    install -D -m 644 -t "$to/$units" slurm_plugin/serve/systemd/gputopo.service slurm_plugin/serve/systemd/gputopo-donors.service \
        slurm_plugin/serve/systemd/gputopo-web.service slurm_plugin/serve/systemd/gputopo@.service slurm_plugin/serve/systemd/gputopo-donors@.service
    # The engine only watches until the administrator says otherwise.
    install -D -m 644 slurm_plugin/config/sample.yaml "$to/etc/slurm/gputopo.yaml"
    PYTHONPATH="$to/$home:$to/$home/vendor" PYTHONDONTWRITEBYTECODE=1 python3 -m slurm_plugin.cli.manual "$to/usr/share" >/dev/null
    # The pages that messages name as docs/NAME.md, and those that they name in turn.
    doc="$to/usr/share/doc/slurm-gputopo"
    find README.md SECURITY.md docs -name '*.md' -exec sh -c 'for page; do install -D -m 644 "$page" "$0/$page"; done' "$doc" '{}' +
    if ls "$WHEELS"/*.whl >/dev/null 2>&1; then
        python3 packaging/dependencies.py list "$WHEELS" >"$doc/vendored.txt"
    fi
}

node() {
    to="$out/slurm-gputopo-node"
    # Slurm's daemons do not start where a folder of PluginDir is missing: every host has this one.
    mkdir -p "$to/$home/node" "$to/$home/slurm"
    python3 -c 'import sys; from pathlib import Path; from slurm_plugin.node import program; program.write(Path(sys.argv[1]))' \
        "$to/$home/node/gputopo-node"
    install -m 755 slurm_plugin/node/task-prolog "$to/$home/node/"
    make -s -C slurm_plugin/node/carry CFLAGS="-O2 -g -ffile-prefix-map=$PWD=." all
    install -m 755 slurm_plugin/node/carry/gputopo-carry "$to/$home/node/"
    install -m 644 slurm_plugin/node/carry/gputopo-wire.so "$to/$home/node/"
    install -D -m 755 -t "$to/$home/launch" slurm_plugin/node/launch/task-prolog slurm_plugin/node/launch/prolog-env
    install -D -m 755 packaging/bin/gputopo-echo "$to/usr/bin/gputopo-echo"
    install -D -m 644 packaging/gputopo-echo.1 "$to/usr/share/man/man1/gputopo-echo.1"
}

plugins() {
    cflags="-O2 -g -ffile-prefix-map=$PWD=."
    make -s -C slurm_plugin/spank CFLAGS="$cflags" gputopo.so
    install -D -m 644 slurm_plugin/spank/gputopo.so "$out/slurm-gputopo-spank/$home/spank/gputopo.so"
    [ -d "${SLURM_SRC:-/none}" ] || return 0
    make -s -C slurm_plugin/select CFLAGS="$cflags" SLURM_SRC="$SLURM_SRC" SLURM_BUILD="$SLURM_BUILD" select_cons_tres.so
    install -D -m 644 slurm_plugin/select/select_cons_tres.so "$out/slurm-gputopo-select/$home/slurm/select_cons_tres.so"
}

engine
node
plugins
