# What people and CI do here.  `make help` lists it.
#
# Nothing but Python 3.11+ and make has to be there: each target sets up $(VENV) when it has to.
# Another interpreter:  make test VENV=.venv-3.13 PYTHON=python3.13

PYTHON ?= python3
VENV ?= .venv
UV ?= uv

# Handed on:  make test TESTS=tests/unit ARGS='-k fork'
TESTS ?= tests
ARGS ?=
# What make mutants looks at: parts of paths below aiocosid/; everything of tests/mutation/modules.toml
# if it is empty, which takes an hour or two.
MODULE ?=
# Processes that share the tests and the slow servers, and wait for servers half of the time.
# 0 for one, in order.
WORKERS ?= 4
# One that has done its share takes tests of the others'.
SHARED = -n $(WORKERS) --dist worksteal

# Of .ci/servers.
SERVER ?= mysql-9.7

# Worlds of each scenario.
SEEDS ?= 1000

# Of make fuzz (for each parser), make chaos and make evidence.
SECONDS ?= 60
TARGETS ?=
# make chaos SCENARIO='sentinel cluster' SECONDS=120 PROCESSES=16;  0 is the scenario's own number.
SCENARIO ?= all
PROCESSES ?= 0
IDS ?= 0
# Where make evidence leaves its histories, about 70 bytes a call.
HISTORIES ?= histories

DEMO_STORE ?= sqlite:///demo.db

BIN := $(VENV)/bin
# -qq: errors only; a registry that lacks one of the packages is not worth a line each.
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check --no-input
SOURCES := aiocosid _aiocosid_pytest.py bench tests

.DEFAULT_GOAL := help
.NOTPARALLEL:  # targets share one environment
# Tests start thousands of processes: what is imported is compiled once, and not in each of them.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help demo test oldest stress nightly server simulate chaos evidence fuzz mutants bench docs changelog \
	dist check lock clean venv

help:  ## List the targets
	@sed -n 's/^\([a-z]*\):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 12

demo: $(VENV)/.demo  ## Ids from a SQLite file, in a few seconds; every run goes on where the last ended
	$(BIN)/aiocosid init --store $(DEMO_STORE)
	$(BIN)/aiocosid next order -n 10 --store $(DEMO_STORE)
	$(BIN)/aiocosid next invoice -n 3 --store $(DEMO_STORE) --format json
	$(BIN)/aiocosid inspect --store $(DEMO_STORE)

test: $(VENV)/.dev  ## All tests but the long ones, against real servers; minutes
	$(BIN)/python -m pytest -m 'not stress' $(SHARED) $(TESTS) $(ARGS)

# Enough to use each driver and library that an extra brings, on all stores, and the first pages.
OLDEST_TESTS := tests/unit/cli tests/unit/converter/test_opaque.py tests/unit/integrations \
	tests/unit/converter/test_formats.py \
	$(wildcard tests/unit/test_settings*.py) tests/unit/test_provider_configured.py \
	tests/unit/segment/test_strides.py tests/contracts/test_distributors.py::TestOnOneStore \
	tests/integration/test_engine_faults.py::TestTornCalls \
	tests/integration/test_sql_faults.py::TestTornCalls tests/docs/test_code_blocks.py
OLDEST_PAGES := README or tutorial or configure or observe
oldest:  ## What uses other libraries, on the oldest releases of them that are allowed, in .venv-oldest
	@$(MAKE) --no-print-directory VENV=.venv-oldest .venv-oldest/.oldest
	.venv-oldest/bin/python -m pytest -m 'not stress' $(SHARED) $(OLDEST_TESTS) \
	  -k 'not test_every_block or $(OLDEST_PAGES)' $(ARGS)

stress: $(VENV)/.dev  ## The long tests: many processes, kill -9
	$(BIN)/python -m pytest -m 'stress and not nightly' $(SHARED) $(TESTS) $(ARGS)

nightly: $(VENV)/.dev  ## The longest: what repeats others on another loop or driver, or for longer
	$(BIN)/python -m pytest -m nightly $(SHARED) $(TESTS) $(ARGS)

# Words of the tests that are about a kind of server, where its name is not enough.
OF_postgres := postgres or _pg or psycopg or standby
OF_mysql := mysql or mariadb or _my or asyncmy
OF_mariadb := $(OF_mysql)
OF_redis := redis or valkey
OF_valkey := $(OF_redis)
KIND = $(firstword $(subst -, ,$(SERVER)))
server: $(VENV)/.dev  ## Contracts and a store's own tests on another version of its server: SERVER=mysql-9.7
	folder=$$(VENV=$(VENV) bash .ci/servers $(SERVER)) && AIOCOSID_TEST_SERVERS=$$folder \
	  $(BIN)/python -m pytest -m 'not nightly' $(SHARED) tests/contracts tests/integration \
	  -k '$(or $(OF_$(KIND)),$(KIND))' $(ARGS)

simulate: $(VENV)/.dev  ## Simulated worlds, on all cores, until something is found: SEEDS=100000
	$(BIN)/python -m tests.simulation all --seeds $(SEEDS) $(ARGS)

fuzz: $(VENV)/.dev  ## Every parser, guided by coverage:  make fuzz SECONDS=60 [TARGETS="urls dates"]
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(TARGETS)

chaos: $(VENV)/.dev  ## Break real servers under real processes: SCENARIO, SECONDS, PROCESSES, IDS
	$(BIN)/python -m tests.chaos $(SCENARIO) --seconds $(SECONDS) --processes $(PROCESSES) \
	  --ids $(IDS) $(ARGS)

evidence: $(VENV)/.dev  ## Histories of real processes under faults, for others to check: SCENARIO, SECONDS, IDS
	$(BIN)/python -m tests.chaos $(SCENARIO) --seconds $(SECONDS) --processes $(PROCESSES) \
	  --ids $(IDS) --into $(HISTORIES) $(ARGS)

mutants: $(VENV)/.dev  ## Change a line, see a test fail: MODULE=snowflake/_sequencer; which changes none notices
	$(BIN)/python -m tests.mutation $(MODULE) $(ARGS)

bench: $(VENV)/.dev  ## Measure; results go into bench/
	$(BIN)/python -m bench $(ARGS); status=$$?; $(BIN)/python -m bench.report; exit $$status

docs: $(VENV)/.dev  ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

changelog: $(VENV)/.dev  ## Put the fragments of docs/changes/ into the changelog: VERSION=1.2.3
	$(BIN)/towncrier build --yes $(if $(VERSION),--version $(VERSION))

dist: $(VENV)/.dev  ## Build the wheel and the sdist into dist/, the same bytes for the same commit
	rm -rf dist
	$(BIN)/python -c 'from hatchling.build import build_sdist, build_wheel; \
	  print(build_sdist("dist"), build_wheel("dist"))'

check: $(VENV)/.dev  ## Format, lint and types
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	@echo 'types, by pyright and mypy side by side: each uses one core'
	@$(BIN)/basedpyright --pythonpath $(BIN)/python & pyright=$$!; failed=0; \
	$(BIN)/mypy $(SOURCES) || failed=1; \
	$(BIN)/python -m tests.typing.complete || failed=1; \
	wait $$pyright || failed=1; exit $$failed

venv: $(VENV)/.dev  ## Only set up the environment

# One file a purpose, with every package pinned by version and hash and no address in it, so that
# it installs from whatever registry pip is set up for.  UPGRADE=--upgrade takes newer versions.
COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--no-emit-index-url --no-emit-find-links
COMPILE_OURS = $(COMPILE) $(UPGRADE) pyproject.toml requirements/build.in
lock:  ## Pin requirements/*.txt anew (needs uv)
	$(COMPILE_OURS) --all-extras -o requirements/dev.txt
	$(COMPILE_OURS) --extra all --upgrade --resolution lowest-direct requirements/oldest.in \
	  -o requirements/oldest.txt
	$(COMPILE_OURS) --extra cli -c requirements/dev.txt -o requirements/demo.txt
	$(COMPILE_OURS) --extra all -c requirements/dev.txt -o requirements/server.txt
	$(COMPILE) requirements/servers.in -o requirements/servers.txt
	@! grep -nE '://|--(extra-)?index|--find-links| @ |(^|[ =])/' requirements/*.txt

clean:  ## Remove what the targets made, except the environment
	rm -rf build dist histories site demo.db* .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find $(SOURCES) -name __pycache__ -prune -exec rm -rf {} +

# $(VENV)/.dev, .demo and .oldest are stamps: the environment holds requirements/dev.txt, demo.txt
# or oldest.txt.
$(VENV)/.%: requirements/%.txt pyproject.toml | $(BIN)/python
	@echo 'installing requirements/$*.txt into $(VENV)'
	@$(PIP) install --no-compile --require-hashes -r $<
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'aiocosid needs Python 3.11+ with venv (Debian: python3-venv); "$(PYTHON)" is not it.'; \
	  echo 'Name another one:  make PYTHON=python3.13 ...'; exit 1; }
	@$(PYTHON) -m venv $(VENV)
