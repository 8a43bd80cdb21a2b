# Everything a user or a developer does here. `make demo` and `make test` need git, make, Python 3.11+ and a package index.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
MANIFESTS := docker/k8s
HELM   := $(or $(wildcard $(BIN)/helm),helm)
SUITES := tests/integration tests/upgrade tests/scenarios tests/process tests/property tests/embedded tests/agent tests/golden tests/unit
DIVIDED := --maxprocesses 4 --dist loadfile --no-loadscope-reorder
# One more than processors, where tests wait for what they started a quarter of the time.
WORKERS := --numprocesses $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1) $(DIVIDED)
CHROMIUM := $(firstword $(shell command -v chromium-headless-shell chromium chromium-browser google-chrome 2>/dev/null))
PROMETHEUS := $(and $(shell command -v prometheus 2>/dev/null),$(shell command -v promtool 2>/dev/null))
NODE := $(and $(shell command -v node 2>/dev/null),$(shell command -v npm 2>/dev/null))
PEERS := $(and $(PROMETHEUS),$(NODE),$(shell PATH=$$PATH:/usr/sbin command -v pgbouncer),$(shell PATH=$$PATH:/usr/sbin command -v nginx),$(shell command -v pgbackrest),$(shell command -v kubectl),$(wildcard /usr/lib/postgresql/15/bin/postgres))
BUILDAH := $(and $(shell command -v buildah 2>/dev/null),$(shell command -v mmdebstrap 2>/dev/null),$(shell unshare --mount echo yes 2>/dev/null))
# SUITE:PROGRAMS of each suite that cannot run on this machine.
LEFT_OUT := $(strip \
    $(if $(CHROMIUM),,tests/browser:chromium-headless-shell) \
    $(if $(PROMETHEUS),,tests/prometheus:prometheus,promtool) \
    $(if $(NODE),,tests/identity:node,npm) \
    $(if $(PEERS),,tests/operations:pgbouncer,pgbackrest,nginx,kubectl,postgresql-15,prometheus,npm) \
    $(if $(and $(BUILDAH),$(PEERS)),,tests/images:buildah,mmdebstrap,the-right-to-mount))
HAS_CLICKHOUSE := command -v clickhouse-server >/dev/null && command -v java >/dev/null && [ -e /usr/share/java/zookeeper.jar ]
OF_TOKENS := ingest_tokens|token_record|usage/tokens|build_scenario|\.company import|factories\.histories
.DEFAULT_GOAL := help

help:           ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## *' '{printf "  make %-10s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Suanpan needs Python 3.11 or newer; $(PYTHON) is older. Set PYTHON=..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	@touch $@

$(VENV)/.dev: requirements-dev.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@touch $@ $(VENV)/.runtime

install: $(VENV)/.runtime   ## install what running needs into .venv

demo: install   ## six demonstration months, one in detail, then the portal on http://127.0.0.1:8000
	$(BIN)/python manage.py demo

up: install     ## web, worker and scheduler without demonstration data
	$(BIN)/python manage.py up

check: lint    ## lint, types, layers, then unit, golden and property tests with few examples: below a minute
	$(BIN)/python -m pytest --numprocesses logical $(DIVIDED) --hypothesis-profile check tests/property tests/golden tests/unit

test: lint     ## everything: lint, types and layers, then every test
	@for suite in $(LEFT_OUT); do echo "make test: $${suite%%:*} is left out: this machine lacks $${suite#*:}" >&2; done
	@[ -z "$(LEFT_OUT)" ] || [ "$$CI" != true ] || { echo "make test: CI leaves no suite out; install what is missing" >&2; exit 2; }
	$(BIN)/python -m pytest $(WORKERS) $(if $(and $(BUILDAH),$(PEERS)),tests/images) $(if $(CHROMIUM),tests/browser) $(if $(PROMETHEUS),tests/prometheus) $(if $(NODE),tests/identity) $(if $(PEERS),tests/operations) $(SUITES)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

images: $(VENV)/.dev   ## build the images with buildah, as root, and run every part from them
	@[ -n "$(BUILDAH)" ] || { echo "make images: no buildah, mmdebstrap and right to mount on this machine" >&2; exit 2; }
	$(BIN)/python -m pytest tests/images

bench: $(VENV)/.dev   ## benchmarks, each as a ratio to a raw limit of the same run
	$(BIN)/python -m tests.benchmarks $(if $(LITELLM),--litellm $(LITELLM))

explore: $(VENV)/.dev  ## look for new counterexamples: every property with fresh seeds, MINUTES=120
	$(BIN)/python -m tests.explore --minutes $(or $(MINUTES),120)

kills: $(VENV)/.dev    ## kill processes in random order under load while months close, MINUTES=10
	$(BIN)/python -m tests.kills --minutes $(or $(MINUTES),10)

histories: $(VENV)/.dev  ## a thousand random histories of a cluster with crashes and outages of its agent
	SUANPAN_HISTORIES=1000 $(BIN)/python -m pytest tests/agent/test_histories.py --hypothesis-show-statistics

traces: $(VENV)/.dev  ## real production traces to the cent; SUANPAN_TRACES names their folder
	$(BIN)/python -m pytest tests/traces

cluster: $(VENV)/.dev  ## recount sealed months on a Spark cluster of this machine, also while workers are killed; needs Java 17 and some 500 MB for pyspark
	@command -v java >/dev/null || { echo "make cluster: no Java on this machine" >&2; exit 2; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-cluster.txt
	$(BIN)/python -m pytest tests/cluster

# Two cores bear four workers, each with servers of its own.
clickhouse: $(VENV)/.dev  ## ClickHouse: its own tests, and those of token usage with their records there; needs clickhouse-server, zookeeper and a JRE (Debian), and some 180 MB for chdb
	@$(HAS_CLICKHOUSE) || { echo "make clickhouse: no clickhouse-server, zookeeper or Java on this machine" >&2; exit 2; }
	@[ -n "$(SUANPAN_TRACES)" ] || echo "make clickhouse: SUANPAN_TRACES names no folder, so the documents of the traces are not compared" >&2
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-clickhouse.txt
	$(BIN)/python -m pytest tests/clickhouse $(if $(SUANPAN_TRACES),,--ignore tests/clickhouse/test_traces.py)
	SUANPAN_TEST_TOKEN_STORE=clickhouse $(BIN)/python -m pytest --numprocesses 4 $(DIVIDED) $(shell grep -lE '$(OF_TOKENS)' $(addsuffix /test_*.py,tests/integration tests/property tests/scenarios))

clickhouse-kills: $(VENV)/.dev  ## 300 kills of ClickHouse, PostgreSQL, writers and closes at each step of theirs: some 20 minutes
	@$(HAS_CLICKHOUSE) || { echo "make clickhouse-kills: no clickhouse-server, zookeeper or Java on this machine" >&2; exit 2; }
	SUANPAN_KILLS=300 $(BIN)/python -m pytest -s tests/clickhouse/test_kills.py

lock: $(VENV)/.dev    ## resolve the dependencies again, with hashes and without index lines
	$(BIN)/uv pip compile --quiet --python-version 3.11 --universal --generate-hashes --no-header --no-emit-index-url --no-emit-find-links --no-annotate pyproject.toml --extra tracing -o requirements.txt
	$(BIN)/uv pip compile --quiet --python-version 3.11 --universal --generate-hashes --no-header --no-emit-index-url --no-emit-find-links --no-annotate pyproject.toml --extra tracing --group dev -o requirements-dev.txt
	$(BIN)/uv pip compile --quiet --python-version 3.11 --universal --generate-hashes --no-header --no-emit-index-url --no-emit-find-links --no-annotate --group cluster -o requirements-cluster.txt
	$(BIN)/uv pip compile --quiet --python-version 3.11 --universal --generate-hashes --no-header --no-emit-index-url --no-emit-find-links --no-annotate -c requirements-dev.txt --group clickhouse -o requirements-clickhouse.txt

sbom: $(VENV)/.dev    ## what runs, as CycloneDX, from the lock: sbom.json
	$(BIN)/python -m tests.supply_chain sbom sbom.json

advisories: $(VENV)/.dev  ## known weaknesses of the locked packages; 1: some, 2: could not be checked
	$(BIN)/python -m tests.supply_chain advisories

manifests: $(VENV)/.dev  ## render the kustomize bases of docker/k8s from the charts
	@for chart in suanpan suanpan-agent; do \
	    $(HELM) template $$chart docker/charts/$$chart --namespace suanpan --values docker/k8s/$$chart/values.yaml \
	        > $(MANIFESTS)/$$chart/manifests.yaml || exit 2; \
	done

.PHONY: help install demo up check test lint bench images explore kills histories traces cluster clickhouse clickhouse-kills lock sbom advisories manifests
