# Everything a developer runs. Each target does its own set-up; `make` alone lists the targets.
PYTHON3 ?= python3
PY := .venv/bin/python
FUZZ_PY := .venv-fuzz/bin/python
MUTANTS_PY := .venv-mutants/bin/python
SECONDS ?=
CORPUS_DIR ?=
GOLDEN ?=
HPAS ?=
PHASES ?=
SEED ?=
TARGETS ?=
ROUNDS ?=
VALUES ?=
RELEASE ?=
LOCK ?=
MODULE ?=
NAMESPACE ?=
PYTEST_ARGS ?=
BENCH_ARGS ?=
CHAOS_ARGS ?=
URL ?=
IMAGE ?=
SNAPSHOT ?=
# Images often set this. The tests start many processes, and each of them would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-setup demo-programs test lint format unit conformance golden fuzz fuzz-setup fuzz-hpas mutants audit chaos bench bench-adapter bench-autoscaler bench-forecast-costs bench-forecast-savings bench-listing bench-metric-rules bench-overload bench-page bench-reaction bench-replay bench-tune image node release krew lock pictures dashboards chart-files render-chart reference docs clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 18

setup: ## create .venv from the pinned lock file, unless it is up to date
	@$(PYTHON3) tools/setup_venv.py

demo: ## run everything on loopback; SECONDS=90 ends by itself
	@$(MAKE) --no-print-directory --jobs=2 demo-setup demo-programs
	@.venv-demo/bin/python -m milliscale demo $(if $(SECONDS),--seconds $(SECONDS))

demo-setup:
	@$(PYTHON3) tools/setup_venv.py .venv-demo requirements-demo.lock

demo-programs:
	@$(PYTHON3) -m playground.binaries prometheus kubectl

test: setup ## everything: lint, types, layers, tests; the recorded cases are among the tests
	@$(MAKE) --no-print-directory --jobs=2 lint unit

lint: setup ## ruff, mypy --strict, import-linter
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	.venv/bin/lint-imports

format: setup ## let ruff rewrite the code
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

unit: setup ## pytest, with two workers more than there are cores; PYTEST_ARGS="-k name" narrows it
	@# In a fresh clone there is no bytecode, and each worker would compile all modules. Errors are shown below.
	@[ -d tests/__pycache__ ] || $(PY) -m pytest --collect-only -qq > /dev/null || true
	$(PY) -m pytest --numprocesses=auto $(PYTEST_ARGS)

conformance: setup ## compare with recorded cases of Kubernetes; CORPUS_DIR=DIR takes others
	@$(PY) -m tests.conformance $(if $(CORPUS_DIR),--corpus-dir $(CORPUS_DIR))

golden: setup ## compare with recorded responses of prometheus-adapter; GOLDEN=FILE takes another recording
	@$(PY) -m tests.golden $(if $(GOLDEN),'$(GOLDEN)')

fuzz: fuzz-setup ## fuzz the parsers with atheris; SECONDS=60 for each, TARGETS="rules selector" narrows it
	@$(FUZZ_PY) -m tests.fuzz $(if $(SECONDS),--seconds $(SECONDS)) $(TARGETS)

fuzz-setup: ## create .venv-fuzz, with atheris and pip-audit, unless it is up to date
	@$(PYTHON3) tools/setup_venv.py .venv-fuzz requirements-fuzz.lock

fuzz-hpas: setup ## compare random HPAs with kube-controller-manager (KUBEBUILDER_ASSETS); HPAS=200 PHASES=6 SEED=1 ROUNDS=1; EAGER=1: with --eager
	@$(PY) -m tests.e2e.fuzz $(if $(HPAS),--hpas $(HPAS)) $(if $(PHASES),--phases $(PHASES)) $(if $(SEED),--seed $(SEED)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(EAGER),--eager)

mutants: ## change MODULE=kube/controller/flowcontrol.py in many small ways, and see its tests notice; minutes (tests/mutants)
	@$(PYTHON3) tools/setup_venv.py .venv-mutants requirements-mutants.lock
	@$(MUTANTS_PY) -m tools.mutants $(MODULE)

audit: fuzz-setup ## look up known vulnerabilities of requirements-clouds.lock (needs the network)
	@$(FUZZ_PY) -m tools.audit requirements-clouds.lock

chaos: setup ## real processes under faults; prints seconds to recover; CHAOS_ARGS="--only NAME --seconds 30" narrows it
	@$(PY) -m tests.chaos $(CHAOS_ARGS)

node: setup ## test the image, the chart and the manifests on a real node, ten minutes (root, NODE_BIN, KUBEBUILDER_ASSETS)
	@$(PY) -m tests.node $(PYTEST_ARGS)

bench-autoscaler: setup ## measure how many HPAs the autoscaler handles; BENCH_ARGS="--hpas 1000" narrows it
	@$(PY) -m bench.autoscaler $(BENCH_ARGS)

bench-forecast-costs: setup ## measure 200 forecasts: CPU, memory, event loop, some minutes; BENCH_ARGS="--forecasts 20" narrows it
	@$(PY) -m bench.forecast_costs $(BENCH_ARGS)

bench-listing: setup ## measure time and memory for listing 20,000 pods; BENCH_ARGS="--pods 1000" narrows it
	@$(PY) -m bench.hpa_listing $(BENCH_ARGS)

bench-metric-rules: setup ## measure 5,000 MetricRules: memory, event loop, time until changes are effective, a minute or two
	@$(PY) -m bench.metric_rules $(BENCH_ARGS)

bench-overload: setup ## send the adapter ten times what it can serve, two minutes; BENCH_ARGS="--seconds 10" is shorter
	@$(PY) -m bench.overload $(BENCH_ARGS)

bench-page: setup ## measure the page of 10,000 HPAs with one viewer; BENCH_ARGS="--hpas 1000" narrows it
	@$(PY) -m bench.page $(BENCH_ARGS)

bench-reaction: setup ## measure seconds from a step of load to the scale, 28 minutes; KUBEBUILDER_ASSETS and PEER compare; BENCH_ARGS="--repetitions 5"
	@$(PY) -m bench.reaction $(BENCH_ARGS)

bench-replay: setup ## measure replays of recorded load; BENCH_ARGS=--quick measures a day only
	@$(PY) -m bench.replay $(BENCH_ARGS)

bench-forecast-savings: setup ## replay five recorded loads with and without forecasts, and with events; some ten minutes
	@$(PY) -m bench.forecast $(BENCH_ARGS)

bench-tune: setup ## tune two recorded loads on one core, a minute each
	@$(PY) -m bench.tune $(BENCH_ARGS)

bench: bench-adapter bench-autoscaler bench-forecast-costs bench-replay ## measure both processes, forecasts, and replays

bench-adapter: setup ## measure the adapter, some minutes; PEER=/path/to/prometheus-adapter compares; BENCH_ARGS narrows it
	@$(PY) -m bench.adapter $(BENCH_ARGS)

pictures: setup ## draw docs/img: the page of the demo, and of a replay, two minutes
	@$(PY) -m tests.browser.picture

dashboards: setup ## generate the Grafana dashboards in manifests/components and the chart
	@$(PY) -m tools.dashboards
	@$(PY) -m tools.chart_files

chart-files: setup ## copy alerts, dashboards and the CRD from manifests/ into the Helm chart
	@$(PY) -m tools.chart_files

render-chart: setup ## print the objects of the Helm chart; VALUES=FILE RELEASE=milliscale NAMESPACE=milliscale
	@$(PY) -m tools.render_chart $(if $(VALUES),--values '$(VALUES)') $(if $(RELEASE),--release '$(RELEASE)') $(if $(NAMESPACE),--namespace '$(NAMESPACE)')

reference: setup ## generate docs/reference: flags and metrics
	@$(PY) -m tools.reference

docs: setup ## build the documentation's site in site/
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet && echo 'read it at http://127.0.0.1:8000: python3 -m http.server --bind 127.0.0.1 --directory site 8000'

image: setup ## do the Dockerfile's steps without a container engine, twice, and compare the files
	@$(PY) -m tools.image $(if $(LOCK),--lock '$(LOCK)')

release: setup ## build a release in dist/ and check it; IMAGE=registry.example/milliscale URL=https://... SNAPSHOT=1
	@$(PY) -m tools.release $(if $(SNAPSHOT),--snapshot) $(if $(IMAGE),--image '$(IMAGE)') $(if $(URL),--url '$(URL)')

krew: setup ## build the krew archive and manifest of the kubectl plugin; URL is where the archive will be
	@$(PY) -m tools.krew $(if $(URL),--url '$(URL)')

lock: setup ## update the lock files from pyproject.toml
	.venv/bin/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-header --no-annotate -q -o requirements.lock
	.venv/bin/uv pip compile pyproject.toml --extra aws --extra azure --extra google -c requirements.lock --universal --python-version 3.11 --generate-hashes --no-header --no-annotate -q -o requirements-clouds.lock
	.venv/bin/uv pip compile --group build -c requirements.lock --universal --python-version 3.11 --generate-hashes --no-header --no-annotate -q -o requirements-build.lock
	.venv/bin/uv pip compile pyproject.toml --extra replay --extra aws --extra azure --extra google --group dev -c requirements-clouds.lock -c requirements-build.lock --universal --python-version 3.11 --generate-hashes --no-header --no-annotate -q -o requirements-dev.lock
	.venv/bin/uv pip compile pyproject.toml --extra replay -c requirements-dev.lock --universal --python-version 3.11 --generate-hashes --no-header --no-annotate -q -o requirements-kubectl.lock
	.venv/bin/uv pip compile pyproject.toml --group demo -c requirements-dev.lock --universal --python-version 3.11 --generate-hashes --no-header --no-annotate -q -o requirements-demo.lock
	.venv/bin/uv pip compile pyproject.toml --group fuzz -c requirements-dev.lock --universal --python-version 3.11 --generate-hashes --no-header --no-annotate -q -o requirements-fuzz.lock
	.venv/bin/uv pip compile pyproject.toml --extra replay --group mutants -c requirements-dev.lock --universal --python-version 3.11 --generate-hashes --no-header --no-annotate -q -o requirements-mutants.lock
	.venv/bin/uv pip compile --group uv --universal --python-version 3.11 --generate-hashes --no-header --no-annotate -q -o requirements-uv.lock

clean: ## remove all generated files
	rm -rf .venv .venv-demo .venv-fuzz .venv-mutants .fuzz .mutants .playground .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist site
