# One command each; every one does its own set-up.
#   make setup    .venv with the package installed for development
#   make test     every test, those against the live cluster included
#   make test-matrix   the live tests on every Slurm release, in both modes (hours); writes docs/matrix.md
#   make demo     the live cluster and the table of what it does
#   make bench    the benchmarks (ONLY=name for one)
#   make lint | cluster | cluster-down | shell
# GPUTOPO_PROJECT names the cluster (default gputopo), SUITE its Debian release (default trixie: Slurm 24.11).
.PHONY: setup lint test test-matrix test-tools demo bench cluster cluster-down shell
.DEFAULT_GOAL := setup

PYTHON := .venv/bin/python
STAMP := .venv/.setup-stamp
PROJECT := $(or $(GPUTOPO_PROJECT),gputopo)
SLOTS_TESTS := test_genie_live.py test_hints_and_explain_live.py test_kinds_of_job.py test_main_job.py test_min_utility.py \
	test_random_soup.py test_reliability.py test_remote_choice_live.py test_remote_kills.py \
	test_remote_live.py test_site_knowledge_live.py test_slots_live.py test_slots_options.py test_topo_aware_live.py
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

setup: $(STAMP)

$(STAMP): setup.cfg pyproject.toml
	@python3 -c 'import venv, ensurepip' 2>/dev/null || { $(SUDO) apt-get update -qq && \
		$(SUDO) apt-get install -y -qq --no-install-recommends python3 python3-venv ca-certificates; }
	@test -x $(PYTHON) || python3 -m venv .venv
	$(PYTHON) -m pip install -q -e '.[dev,plot]'
	@touch $@

lint: setup
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy

# What the tests run besides Python: Lua 5.1 as slurmctld embeds it, a compiler with sanitizers.
test-tools:
	@{ lua5.1 -e 'require "socket.unix"' && command -v gcc && command -v make; } >/dev/null 2>&1 || \
		{ $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq --no-install-recommends \
		lua5.1 lua-socket gcc libc6-dev make; }

# Exit 3: no container engine can start. Said in one line; the tests that need none
# still run and pytest counts the skipped ones (as failures where CI=true).
# What is run in the slots mode, too, has a cluster of its own and runs at the same time: live
# tests wait more than they work. Its output comes at the end.
test: setup test-tools
	@docker/cluster.sh images || test $$? = 3
ifdef ARGS
	$(PYTHON) -m pytest --junitxml=.cluster/junit/select.xml $(ARGS)
else
	@mkdir -p .cluster/junit
	@GPUTOPO_ENFORCEMENT=slots GPUTOPO_PROJECT=$(PROJECT)-slots $(PYTHON) -m pytest --junitxml=.cluster/junit/slots.xml \
		$(addprefix tests/cluster/,$(SLOTS_TESTS)) >.cluster/junit/slots.log 2>&1 & slots=$$!; \
	trap "kill $$slots; exit 1" INT TERM; \
	$(PYTHON) -m pytest --junitxml=.cluster/junit/select.xml; found=$$?; \
	wait $$slots || found=1; \
	echo "Enforcing by slots:"; cat .cluster/junit/slots.log; exit $$found
endif

# ARGS='--suite forky --mode slots --file test_main_job.py' for a part (--help).
test-matrix: setup test-tools
	PYTHONPATH=tests/cluster $(PYTHON) tests/cluster/release_matrix.py $(ARGS)

demo: setup
	@docker/cluster.sh up || test $$? = 3
	PYTHONPATH=tests/cluster $(PYTHON) docker/demo.py

bench: setup
	$(PYTHON) -m bench $(ONLY)

cluster: setup
	@docker/cluster.sh up

cluster-down:
	@docker/cluster.sh down

shell: cluster
	@docker/cluster.sh shell
