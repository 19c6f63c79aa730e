# One command each; every one does its own set-up.
#   make setup    .venv with the package, and papers beside it, installed for development
#   make test     the tests, those against the live cluster included (ARGS='FILE -k NAME' for some)
#   make test-long     those that take long, in eighths (EIGHTH=3 for one; ARGS as above)
#   make test-matrix   all live tests on every Slurm release (SUITES=forky for one; an hour each); writes docs/matrix.md
#   make test-sanitized   live tests with the select plugin inside slurmctld under ASan and UBSan (ARGS=files)
#   make packages      Debian packages and RPMs for each release of Debian (SUITES=trixie for one), into .cluster/packages
#   make demo     the live cluster and the table of what it does
#   make bench    the benchmarks (ONLY=name for one)
#   make papers   the papers' experiments that have no result yet, and docs/reproduction.md (ONLY=name for one, ONLY=none for the page)
#   make mutants  which one-line faults the tests notice (ONLY=policies for one part); writes docs/mutants.md
#   make docs     the documentation as a site with a search, in .cluster/docs; a dead link is an error
#   make lint | cluster | cluster-down | shell
#   make clean    what this checkout brought onto the machine goes: clusters, images, .cluster, a dockerd that it started
# GPUTOPO_PROJECT names the cluster (default: the checkout's own), SUITE its Debian release (default trixie: Slurm 24.11).
.PHONY: setup lint test test-long test-matrix test-sanitized test-tools browser mutants packages demo bench papers docs cluster cluster-down shell clean
.DEFAULT_GOAL := setup

PYTHON := .venv/bin/python
STAMP := .venv/.setup-stamp
PYTHON3 ?= python3
# Compiled modules are kept, where no source is: without them each worker compiles every test anew.
export PYTHONPYCACHEPREFIX ?= $(CURDIR)/.venv/pycache
unexport PYTHONDONTWRITEBYTECODE

setup: $(STAMP)

$(STAMP): setup.cfg pyproject.toml papers/setup.cfg papers/pyproject.toml
	@command -v $(PYTHON3) >/dev/null || slurm_cluster/docker/install-packages.sh $(notdir $(PYTHON3)) ca-certificates
	@$(PYTHON3) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$$($(PYTHON3) -V) found ($(PYTHON3)), \
	3.11 or newer needed: make $(or $(MAKECMDGOALS),setup) PYTHON3=/path/to/python3.11" >&2; false; }
	@$(PYTHON3) -c 'import venv, ensurepip' 2>/dev/null || slurm_cluster/docker/install-packages.sh $(notdir $(PYTHON3))-venv ca-certificates
	@test -x $(PYTHON) || $(PYTHON3) -m venv .venv
	@# Modules are compiled when they are first used: most never are.
	$(PYTHON) -m pip install -q --no-compile -e '.[dev,plot]' -e ./papers
	@touch $@

lint: setup
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy

# What the tests run besides Python: Lua 5.1 as slurmctld embeds it, a compiler with sanitizers, and the
# web servers in front of the page. Without them their tests are skipped. Debian starts an nginx that it
# installs; tests start their own.
test-tools:
	@nginx=$$(PATH="$$PATH:/usr/sbin" command -v nginx || :); \
	{ lua5.1 -e 'require "socket.unix"' && command -v gcc && [ "$$nginx" ] && PATH="$$PATH:/usr/sbin" command -v apache2; } >/dev/null 2>&1 || \
		{ slurm_cluster/docker/install-packages.sh lua5.1 lua-socket gcc libc6-dev nginx apache2-bin && \
		{ [ "$$nginx" ] || $$([ "$$(id -u)" = 0 ] || echo sudo) systemctl disable -q --now nginx 2>/dev/null || :; }; } || test $$? = 3

# Tests without a cluster run while images are in the making. Then each worker has a cluster of its
# own: live tests wait more than they work. Where no container engine can start that is said in one
# line, and pytest counts the live tests as skipped (as failures where CI=true).
PYTEST = $(PYTHON) -m pytest -n $(or $(WORKERS),6) --dist loadscope --no-loadscope-reorder
test-long eighth-%: WORKERS ?= 8

test: setup test-tools
	@slurm_cluster/cluster.sh images & $(PYTEST) --junitxml=.cluster/junit/test.xml $(or $(ARGS),--run short); \
	found=$$?; wait; exit $$found

# The tests marked long, by more workers: they wait still more. Eighth by eighth, dealt out anew by what they took the last time; then the
# mutants. Each eighth writes into tests/long_run.json, and those after one that failed run, too.
test-long: setup test-tools
ifdef ARGS
	@$(MAKE) -s browser && { slurm_cluster/cluster.sh pocl || test $$? = 3; }
	$(PYTEST) --junitxml=.cluster/junit/long.xml --run long $(ARGS)
else
	@$(if $(EIGHTH),,$(PYTHON) tests/eighths.py)
	@$(MAKE) -sk $(addprefix eighth-,$(or $(EIGHTH),1 2 3 4 5 6 7 8))
	@$(if $(EIGHTH),,$(MAKE) mutants)
endif

eighth-%:
	@! $(PYTHON) tests/eighths.py $* | grep slurm_plugin/tell/web >/dev/null || $(MAKE) -s browser
	@! $(PYTHON) tests/eighths.py $* | grep test_pocl >/dev/null || slurm_cluster/cluster.sh pocl || test $$? = 3
	$(PYTEST) --junitxml=.cluster/junit/long-$*.xml --run long --eighth $*

# A browser for the long tests of the page; without one they are skipped.
browser: setup
	@$(PYTHON) -c 'import playwright' 2>/dev/null || $(PYTHON) -m pip install -q -e '.[browser]'
	@for name in chromium npm; do command -v $$name >/dev/null || slurm_cluster/docker/install-packages.sh $$name || test $$? = 3; done

# A table of results: tests that fail are counted in it.
test-matrix: setup test-tools
	@for suite in $(or $(SUITES),bookworm trixie forky); do export SUITE=$$suite; slurm_cluster/cluster.sh images && \
	{ $(PYTEST) --junitxml=.cluster/junit/$$suite.xml $(or $(ARGS),tests/cluster) || test $$? = 1; } && \
	PYTHONPATH=tests/cluster $(PYTHON) -m tests.cluster.matrix.releases .cluster/junit/$$suite.xml || exit; done

# A report aborts slurmctld, and is in the file that the last line looks for.
test-sanitized: ARGS := $(addprefix tests/cluster/,$(addprefix select/test_select_,live.py pass_through.py waiting.py) attacks)
test-sanitized: setup test-tools
	@slurm_cluster/cluster.sh up && slurm_cluster/cluster.sh sanitize
	GPUTOPO_KEEP=1 $(PYTHON) -m pytest -m cluster $(ARGS)
	@slurm_cluster/cluster.sh exec ctl sh -c '! cat /var/log/slurm/sanitizer.* 2>/dev/null'

# Goes on where it was broken off; every mutant is put into a copy of the tree.
mutants: setup test-tools
	PYTHONPATH=tests/mutants $(PYTHON) tests/mutants/run_mutants.py $(ONLY)

packages: setup
	@for suite in $(or $(SUITES),bookworm trixie forky); do SUITE=$$suite slurm_cluster/cluster.sh packages || exit; done

# Both have the policy that sites get; tests name another one.
demo cluster: export GPUTOPO_CLUSTER ?= $(CURDIR)/slurm_cluster/site.yaml
demo: setup
	@export GPUTOPO_STARTED=$$(date +%s); { slurm_cluster/cluster.sh up || test $$? = 3; } && \
	$(PYTHON) -m bench.live.demo

bench: setup
	$(PYTHON) -m bench $(ONLY)

papers: setup
	.venv/bin/gputopo experiment all --out docs --results papers/results $(addprefix --only=,$(ONLY))

docs: setup
	@$(PYTHON) docs/pictures/draw.py
	@$(PYTHON) -m sphinx -q -W --keep-going -c docs -b html . .cluster/docs
	@echo "open .cluster/docs/index.html"

cluster: setup
	@slurm_cluster/cluster.sh up

cluster-down:
	@slurm_cluster/cluster.sh down

shell: cluster
	@slurm_cluster/cluster.sh shell

clean:
	@slurm_cluster/cluster.sh clean
