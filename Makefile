# Everything is installed into this folder: .venv (Python packages), .tools (uv, jars); data of runs lies in .data.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:

PYTHON ?= python3.11
UV_VERSION := 0.13.8
UV := .tools/bootstrap/bin/uv
SPARK := 4.0.5
BIN := .venv/bin
# More than cores: part of the tests' time is waiting for brokers. Four take up to 5 GB together.
TEST_PROCESSES ?= 4
PYTEST_ALL := $(BIN)/pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder
# Each process collects all files that it is given, and to import those of all tests takes it twenty seconds.
LONG_TESTS = $(shell grep -rlF mark.long --include='test_*.py' $(TESTS))
export UV_CACHE_DIR := $(CURDIR)/.tools/uv-cache
export UV_PYTHON_DOWNLOADS := never
# Python's compiled code is kept, whatever the caller's shell says: every service and test starts with it.
export UV_COMPILE_BYTECODE := 1
export PYTHONDONTWRITEBYTECODE :=

MEMBERS := libs/* services/* spark-jobs load-generators experiments
PYPROJECTS := $(wildcard pyproject.toml $(MEMBERS:%=%/pyproject.toml))
PACKAGES := $(patsubst %/pyproject.toml,%,$(wildcard $(MEMBERS:%=%/pyproject.toml)))
SOURCES := $(wildcard $(MEMBERS:%=%/src))
TESTS := $(wildcard $(MEMBERS:%=%/tests) tests)
CHECKED := $(wildcard .ci/*.py) $(SOURCES) $(TESTS) $(wildcard benchmarks/*.py benchmarks/peers/*.py) $(wildcard helm/*.py helm/keygrouping/files/*.py helm/monitoring spark-jobs/image/*.py docs/site/*.py docs/images/concepts.py)
SHELLS := .ci/run $(wildcard services/*.sh spark-jobs/image/*.sh)
CHART := helm/keygrouping

DOCKER ?= docker
# The one source of the version; all else is compared with it by a test.
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
TAG ?= $(VERSION)
IMAGES := producer router worker aggregator observer spark load
BUILD_spark := --file spark-jobs/Dockerfile
BUILD_load := --file services/Dockerfile --build-arg SERVICE=load --build-arg FOLDER=load-generators
BUILD = $(or $(BUILD_$*),--file services/Dockerfile --build-arg SERVICE=$*)
# Values of the chart that name the pushed images by digest.
DIGESTS ?= .data/images.yaml
IMAGE = $(if $(REGISTRY),$(REGISTRY:/=)/)keygrouping-$*:$(TAG)

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: .venv/installed .tools/kernels/compiled .tools/jars/installed.json .tools/archives/made ## install all into this folder (once; later offline)

run: install ## the whole pipeline on this machine; options by ARGS="--once --grouping pkg --workers 10 ..." (ARGS=--help)
	@exec $(BIN)/keygrouping-run $(ARGS)

load: .venv/installed ## events into a Kafka at a held rate; ARGS="--bootstrap-servers HOST:PORT --rate 5000 ..." (ARGS=--help)
	@$(BIN)/keygrouping-load events $(ARGS)

load-http: .venv/installed ## calls of router and producer; ARGS="--router-url http://HOST:PORT --producer-url ..." (ARGS=--help)
	@$(BIN)/keygrouping-load http $(ARGS)

test: install ## the tests, with a real broker and Spark; a selection by ARGS="-k NAME"
	$(PYTEST_ALL) -m "not long and not fuzz and not fault and not matrix and not cluster and not network and not soak" $(ARGS)

test-units: .venv/installed ## the libraries' tests that need no broker: minutes, on any Python that is supported
	$(PYTEST_ALL) -m "not kafka and not spark and not long and not fuzz" libs/keygrouping libs/service $(ARGS)

test-long: install ## the tests that take longest: mixed runners, outages and changes in mid-stream; CI runs them, too
	$(PYTEST_ALL) -m long $(or $(ARGS),$(LONG_TESTS))

test-spark: install ## Spark's tests on another version of it: 4.0.5, or SPARK=4.1.1 (downloads half a gigabyte, once); ARGS="-k NAME"
	$(UV) pip install --quiet --no-deps --target .tools/spark-$(SPARK)/python pyspark==$(SPARK) 'pyarrow<22'  # later ones need Spark 4.2
	export PYTHONPATH=$(CURDIR)/.tools/spark-$(SPARK)/python KEYGROUPING_LOCAL_TOOLS_DIR=$(CURDIR)/.tools/spark-$(SPARK); \
	$(BIN)/python -m keygrouping_local.jars; $(BIN)/pytest spark-jobs libs/pyspark -m spark $(ARGS)

test-checkpoints: install ## the Spark job's kills and lost checkpoints with checkpoints elsewhere: CHECKPOINTS=hdfs://host:port
	$(if $(CHECKPOINTS),,$(error name a store of yours, such as CHECKPOINTS=hdfs://host:port))
	CHECKPOINTS=$(CHECKPOINTS) $(BIN)/pytest spark-jobs/tests/test_job.py -k "killed or lost or forgotten or unread" $(ARGS)

test-fuzz: .venv/installed ## millions of damaged record batches, documents and partials through the compiled readers (minutes)
	$(BIN)/pytest libs -m fuzz --timeout 3600 $(ARGS)

test-faults: install ## the long fault tests: kills at random moments while a million events flow
	$(BIN)/pytest -m fault --timeout 3600 --log-cli-level INFO $(ARGS)

test-matrix: install ## every workload, grouping, number of workers and runner against the oracle (hours); ARGS="-k native"
	$(BIN)/pytest -m matrix $(ARGS)

test-network: install ## random schedules of faults on three brokers (hours); ARGS="--schedules 200", "--seed 7", "--runner spark"
	$(BIN)/pytest tests/network -m network --timeout 0 $(ARGS)

test-soak: install ## hundreds of kills, with the memory of each process (half an hour); ARGS="--kills 300"
	$(BIN)/pytest tests/network -m soak --timeout 0 $(ARGS)

lint: .venv/installed ## style, types, imports, dependencies, dead code, JavaScript, shell, spelling, words, the chart
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/lint-imports --no-logo
	for package in $(PACKAGES); do (cd $$package && echo $$package && $(CURDIR)/$(BIN)/deptry --no-ansi src); done
	$(BIN)/python .ci/dead_code.py .
	$(BIN)/oxlint services libs
	$(BIN)/shellcheck $(SHELLS)
	$(BIN)/codespell
	$(BIN)/python .ci/words.py .
	$(BIN)/python .ci/aiokafka_inside.py .
	@if command -v "$${HELM:-helm}" >/dev/null; then for values in $(CHART)/values.yaml $(CHART)/ci/all-options-values.yaml; do \
	  echo "helm lint --values $$values" && "$${HELM:-helm}" lint --strict --quiet --values $$values $(CHART); done; \
	  else echo "helm is missing: the chart is not linted" >&2; fi
	$(BIN)/mypy --strict $(CHECKED)

format: .venv/installed ## rewrite the code in the house format
	$(BIN)/ruff check --fix $(CHECKED)
	$(BIN)/ruff format $(CHECKED)

docs: .venv/installed ## rewrite the pages of docs/ that are made from code
	$(BIN)/python -m keygrouping_service.observability.metrics_page > docs/metrics.md
	$(BIN)/python docs/site/settings_page.py
	$(BIN)/python docs/site/job_schema.py
	$(BIN)/python docs/site/http_page.py
	$(BIN)/python docs/images/concepts.py

site: .venv/installed ## the documentation as a site in .data/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

monitoring: .venv/installed ## rewrite the chart's rules, alerts and dashboards from helm/monitoring
	$(BIN)/python helm/monitoring_files.py

chart: monitoring ## rewrite what is made of the chart: schema, README, renders, plain manifests (needs helm)
	$(BIN)/python helm/chart_files.py

test-chart: .venv/installed ## the chart's tests (needs helm; with HELM=..., another one)
	$(BIN)/pytest tests/chart $(ARGS)

test-cluster: .venv/installed ## the tests on a real cluster: that of kubectl's context (needs kubectl, helm, the images); ARGS="-k scaling"
	$(BIN)/pytest tests/cluster -m cluster --timeout 7200 -s $(ARGS)

version: ## all packages and the chart get another version; TO=0.2.0, then `make chart`
	@[[ "$(TO)" =~ ^[0-9]+\.[0-9]+\.[0-9]+([a-z0-9.]*)$$ ]] || { echo "TO=... must name the version, such as TO=0.2.0" >&2; exit 1; }
	sed -i 's/^version = ".*"/version = "$(TO)"/' $(PYPROJECTS)
	sed -i 's/^version: .*/version: $(TO)/; s/^appVersion: .*/appVersion: "$(TO)"/' $(CHART)/Chart.yaml
	sed -i '/^version = "$(VERSION)"$$/{N;/editable\|virtual/s/$(VERSION)/$(TO)/}' uv.lock

images: $(IMAGES:%=image-%) ## all container images; REGISTRY=host/folder TAG=... BUILD_ARGS="--build-arg INDEX_URL=..."

image-%:
	DOCKER_BUILDKIT=1 $(DOCKER) build $(BUILD) --build-arg VERSION=$(TAG) \
	  --build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null || true) $(BUILD_ARGS) --tag $(IMAGE) .

push: $(IMAGES:%=push-%) ## all container images to the registry that they were made for; REGISTRY=host/folder TAG=...
	@mkdir -p $(dir $(DIGESTS)) && cat $(IMAGES:%=$(DIGESTS).%) > $(DIGESTS) && rm $(IMAGES:%=$(DIGESTS).%)
	@echo "what runs is what was pushed, whatever becomes of the tag: helm install --values $(DIGESTS) ..."

push-%:
	$(DOCKER) push $(IMAGE)
	@mkdir -p $(dir $(DIGESTS))
	@digest=$$($(DOCKER) image inspect --format '{{range .RepoDigests}}{{println .}}{{end}}' $(IMAGE) \
	  | sed -n 's|^$(IMAGE:%:$(TAG)=%)@||p' | head -1) && [ -n "$$digest" ] || \
	  { echo "$(IMAGE): docker knows no digest of it" >&2; exit 1; }; \
	  printf '%s: {image: {digest: "%s"}}\n' $* "$$digest" > $(DIGESTS).$*

bench: install ## the benchmarks, each in turn
	for benchmark in benchmarks/*.py; do $(BIN)/python "$$benchmark" $(ARGS); done

bench-peers: install ## keygrouping beside its peers, installed into .tools/peers (an hour); ARGS="route --records 1000000 --rounds 3"
	cd benchmarks && ../$(BIN)/python -m peers $(ARGS)

clean: ## remove the data of runs and all caches; what `make install` brought stays
	rm -rf .data .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -not -path './.tools/*' -prune -exec rm -rf {} +

$(UV):
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing: install Python 3.11, or name another by PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv .tools/bootstrap || { echo "$(PYTHON) can't make a virtual environment: install its venv package (Debian: apt-get install python3.11-venv)" >&2; exit 1; }
	.tools/bootstrap/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

.venv/installed: uv.lock $(PYPROJECTS) | $(UV)
	$(UV) sync --frozen $(if $(wildcard .venv/bin/python),,--python "$$(command -v $(PYTHON))")
	@touch $@

.tools/kernels/compiled: .venv/installed $(shell find libs services -path '*/src/*_kernel.py' -o -path '*/src/*/precompile.py')
	@echo "compiling the kernels, so that no start has to wait for that (two minutes, once)"
	@# One kernel's compiled code has that of others of which it was made: numba asks whether its own file is newer only.
	@find libs services -path '*/__pycache__/*.nb[ci]' -delete
	@$(BIN)/python -m keygrouping.precompile
	@$(BIN)/python -m keygrouping_service.records.v2.precompile
	@$(BIN)/python -c "from keygrouping_service.events.lateness import warm_up; warm_up()"
	@$(BIN)/python -c "from keygrouping_router.data.accounting import warm_up; warm_up()"
	@# What the test of a new process is to find, and no more: tests compile by the way whatever the install has missed.
	@mkdir -p $(@D) && find libs services -path '*/__pycache__/*.nb[ci]' | tar --create --file $@ --files-from -

.tools/jars/installed.json: .venv/installed libs/local/src/keygrouping_local/jars.py libs/local/src/keygrouping_local/jars.lock
	$(BIN)/python -m keygrouping_local.jars
	@touch $@

# Without it everything works, only later; so it may fail, and is tried again next time.
.tools/archives/made: .tools/jars/installed.json
	-@$(BIN)/python -m keygrouping_local.warmup && touch $@

.PHONY: help install run load load-http test test-units test-long test-spark test-checkpoints test-fuzz test-faults test-matrix test-network test-soak lint format version docs site monitoring chart test-chart test-cluster images push bench bench-peers clean
