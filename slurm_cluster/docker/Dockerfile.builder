# Targets: `builder` (Slurm's source, compiler: compiles and tests the C plugin; the compiled ones in /out), `pyslurm`.
# A file of its own, because the classic builder builds every stage before the wanted one:
# cluster.sh builds it beside Dockerfile.
FROM base AS compiler
ARG SUITE
RUN apt-get update && apt-get install -y --no-install-recommends \
        gcc libc6-dev make binutils libslurm-dev dpkg-dev xz-utils bzip2 ca-certificates gdb \
 && rm -rf /var/lib/apt/lists/*
COPY image/fetch-slurm-source /usr/local/bin/
RUN fetch-slurm-source "$SUITE"
ENV SLURM_SRC=/usr/src/slurm SLURM_BUILD=/usr/src/slurm-build
WORKDIR /src


FROM compiler AS builder
# The folder may lack the plugin (no Makefile) and the release its source: both are said, neither fails.
COPY slurm_plugin/select/ /src/slurm_plugin/select/
COPY image/build-select-plugin /usr/local/bin/
RUN build-select-plugin /out
# The launch plugin needs slurm/spank.h alone, so every release builds it.
COPY slurm_plugin/spank/ /src/slurm_plugin/spank/
RUN make -C slurm_plugin/spank OUT=/tmp/spank gputopo.so \
 && install -D -m 755 slurm_plugin/spank/gputopo.so /out/launch/gputopo.so
# What lies beside gputopo-node needs nothing of Slurm.
COPY slurm_plugin/node/carry/ /src/slurm_plugin/node/carry/
RUN make -C slurm_plugin/node/carry OUT=/tmp/wire TO=/out/launch


# The optional PySlurm takes minutes, and only tests of its client need it.
FROM compiler AS pyslurm
ARG SUITE
COPY pyslurm/ pyslurm/${SUITE}/ /pyslurm/
COPY image/build-pyslurm /usr/local/bin/
RUN build-pyslurm /out
