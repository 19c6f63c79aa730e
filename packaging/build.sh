#!/bin/sh
# build.sh SUITE: in a container, with the source tree at /build/source and wheels in /build/wheels:
# Debian packages and RPMs into /build/out, with what lintian says about the former.
set -eu

suite="$1"
# Newer releases of Debian have newer packages of the same sources.
case "$suite" in
    bookworm) debian=12 units=lib/systemd/system ;;
    trixie) debian=13 units=usr/lib/systemd/system ;;
    forky) debian=14 units=usr/lib/systemd/system ;;
esac
export UNITDIR="$units" WHEELS=/build/wheels SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:?}"
[ -d "$SLURM_SRC" ] || { echo "no source of $suite's Slurm was to be had: slurm-gputopo-select is not built"; export DEB_BUILD_PROFILES=pkg.slurm-gputopo.noselect; }
mkdir -p /build/out
cd /build/source
version="$(sed -n 's/^version = //p' setup.cfg)"
cp -r packaging/debian debian
cat >debian/changelog <<CHANGES
slurm-gputopo ($version+deb$debian) $suite; urgency=medium

  * Version $version; changelog.gz beside this file says what is new.

 -- $(sed -n "s,^Maintainer: ,,p" debian/control)  $(date -R -u -d "@$SOURCE_DATE_EPOCH")
CHANGES
# -d: of build-essential it is only g++ that is missing.
dpkg-buildpackage -b -d -uc -us >/build/out/build.log 2>&1 || { tail -30 /build/out/build.log; exit 1; }
cp ../*.deb /build/out/
lintian --fail-on error --allow-root --tag-display-limit 0 ../*.changes >/build/out/lintian.txt || { cat /build/out/lintian.txt; exit 1; }

# Debian's rpm builds them, and nothing here has installed them on a machine with RPMs.
[ "$suite" = trixie ] || exit 0
make -s -C slurm_plugin/spank clean
make -s -C slurm_plugin/select clean
make -s -C slurm_plugin/node/carry clean
rpmbuild -bb --define "tree $PWD" --define "version_here $version" --define "wheels $WHEELS" --define "_unitdir /usr/lib/systemd/system" \
    --define "slurm $(dpkg-query --show --showformat='${source:Upstream-Version}' libslurm-dev)" --define "_topdir /build/rpm" \
    packaging/rpm/slurm-gputopo.spec >/build/out/rpmbuild.log 2>&1 || { tail -30 /build/out/rpmbuild.log; exit 1; }
cp /build/rpm/RPMS/*/*.rpm /build/out/
