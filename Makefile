# Everything is installed into this folder: .venv (Python packages), .tools (uv, jars); data of runs lies in .data.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:

PYTHON ?= python3.11
UV_VERSION := 0.13.8
UV := .tools/bootstrap/bin/uv
BIN := .venv/bin
# More than cores: half of the tests' time is waiting for brokers. Each takes up to 2.5 GB.
TEST_PROCESSES ?= 3
export UV_CACHE_DIR := $(CURDIR)/.tools/uv-cache
export UV_PYTHON_DOWNLOADS := never

PYPROJECTS := $(wildcard pyproject.toml libs/*/pyproject.toml services/*/pyproject.toml spark-jobs/pyproject.toml)
SOURCES := $(wildcard libs/*/src services/*/src spark-jobs/src)
TESTS := $(wildcard libs/*/tests services/*/tests spark-jobs/tests tests)
CHECKED := $(SOURCES) $(TESTS) $(wildcard benchmarks/*.py) $(wildcard helm/*.py spark-jobs/image/*.py)

DOCKER ?= docker
TAG ?= $(shell sed -n 's/^appVersion: "\(.*\)"/\1/p' helm/keygrouping/Chart.yaml)
IMAGES := producer router worker aggregator observer spark

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: .venv/installed .tools/jars/installed.json .tools/archives/made ## install all into this folder (once; later offline)

run: install ## the whole pipeline on this machine; options by ARGS="--once --grouping pkg --workers 10 ..." (ARGS=--help)
	@exec $(BIN)/keygrouping-run $(ARGS)

test: install ## all tests, with a real broker and Spark; a selection by ARGS="-k NAME"
	$(BIN)/pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder -m "not fault and not matrix" $(ARGS)

test-faults: install ## the long fault tests: kills at random moments while a million events flow
	$(BIN)/pytest -m fault --timeout 3600 $(ARGS)

test-matrix: install ## every workload, grouping, number of workers and runner against the oracle (hours); ARGS="-k native"
	$(BIN)/pytest -m matrix $(ARGS)

lint: .venv/installed ## style, formatting and types
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/mypy --strict $(CHECKED)

format: .venv/installed ## rewrite the code in the house format
	$(BIN)/ruff check --fix $(CHECKED)
	$(BIN)/ruff format $(CHECKED)

docs: .venv/installed ## write anew the pages of docs/ that are made from code
	$(BIN)/python -m keygrouping_service.metrics_page > docs/metrics.md

chart: .venv/installed ## rewrite what is made of the chart: schema, README, renders, plain manifests (needs helm)
	$(BIN)/python helm/chart_files.py

test-chart: .venv/installed ## the chart's tests (needs helm; with HELM=..., another one)
	$(BIN)/pytest tests/chart $(ARGS)

images: $(IMAGES:%=image-%) ## all container images; REGISTRY=host/folder TAG=... BUILD_ARGS="--build-arg INDEX_URL=..."

image-%:
	DOCKER_BUILDKIT=1 $(DOCKER) build --file $(if $(filter spark,$*),spark-jobs,services/$*)/Dockerfile --build-arg VERSION=$(TAG) \
	  --build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null || true) $(BUILD_ARGS) \
	  --tag $(if $(REGISTRY),$(REGISTRY:/=)/)keygrouping-$*:$(TAG) .

bench: install ## the benchmarks, each in turn
	for benchmark in benchmarks/*.py; do $(BIN)/python "$$benchmark" $(ARGS); done

clean: ## remove the data of runs and all caches; what `make install` brought stays
	rm -rf .data .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -not -path './.tools/*' -prune -exec rm -rf {} +

$(UV):
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing: install Python 3.11, or name another by PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv .tools/bootstrap || { echo "$(PYTHON) can't make a virtual environment: install its venv package (Debian: apt-get install python3.11-venv)" >&2; exit 1; }
	.tools/bootstrap/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

.venv/installed: uv.lock $(PYPROJECTS) | $(UV)
	$(UV) sync --frozen $(if $(wildcard .venv/bin/python),,--python "$$(command -v $(PYTHON))")
	@touch $@

.tools/jars/installed.json: .venv/installed libs/local/src/keygrouping_local/jars.py
	$(BIN)/python -m keygrouping_local.jars
	@touch $@

# Without it everything works, only later; so it may fail, and is tried again next time.
.tools/archives/made: .tools/jars/installed.json
	-@$(BIN)/python -m keygrouping_local.warmup && touch $@

.PHONY: help install run test test-faults test-matrix lint format docs chart test-chart images bench clean
