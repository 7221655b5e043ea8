# Everything a newcomer types. Each target sets up what it needs; nothing else comes first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORES := $(shell getconf _NPROCESSORS_ONLN)
PYTEST = $(BIN)/python -m pytest --numprocesses $(WORKERS)
KERNEL := $(wildcard router/*/*.pyx router/wire/*/*.pyx router/*/*.pxi router/wire/*/kernel/*.pxi)

.DEFAULT_GOAL := help
.PHONY: help setup demo pipeline-demo quick test test-all test-slow lint types contracts check bench clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

setup: $(VENV)/.ready  ## a virtual environment with the router and what its tests need

$(VENV)/.ready: pyproject.toml requirements-dev.lock setup.py $(KERNEL)
	PYTHON=$(PYTHON) deploy/setup-environment $(VENV)
	@touch $@

demo: setup  ## the main job on this machine: traffic, a cut in the middle, an account of it
	$(BIN)/router demo

pipeline-demo: setup  ## two routers under faults, their ledgers audited on Spark; needs Java
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements-spark.lock
	$(BIN)/python -m router.pipeline.demo

# Tests of processes wait a lot, so two share a core; in the whole suite some start a JVM each.
test: WORKERS ?= $(shell expr 2 '*' $(CORES))
quick test-all: WORKERS ?= $(CORES)

quick: setup  ## tests, a minute: the lower floors without a process; after every edit. TESTS=... names folders
	$(PYTEST) --tier quick $(TESTS)

test: setup  ## tests, some 6 minutes on two cores: all floors, with real routers and clients; before every commit
	$(PYTEST) --tier test $(TESTS)

test-all: setup  ## tests, 25 minutes: also kills, takeovers, Spark, RabbitMQ, floods; what CI runs
	$(PYTEST) --tier all $(TESTS)

test-slow: setup  ## tests, hours: fuzz, soak, address sanitizer
	$(BIN)/python -m pytest -m slow

lint: setup  ## ruff: lint and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup  ## mypy, strict
	$(BIN)/mypy

contracts: setup  ## which floor may import which
	$(BIN)/lint-imports

check: lint types contracts test  ## lint, types, contracts and tests, before a pull request

bench: setup  ## throughput and latency beside the octet relay; BENCH=--quick is the short run
	$(BIN)/python -m tests.bench $(BENCH)

clean:  ## forget the environment and what was built
	rm -rf $(VENV) build dist *.egg-info
