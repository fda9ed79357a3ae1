# make demo and make test work on a fresh machine: each makes its own environment first.

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# one thread for each process, so that sums are taken in the same order on every machine
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export NUMBA_NUM_THREADS := 1

.DEFAULT_GOAL := help
.PHONY: help demo test check cli-docs clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' | awk -F'|' '{printf "  make %-10s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml
	@found=; for python in "$(PYTHON)" python3 python3.14 python3.13 python3.12 python3.11; do \
	  if [ -n "$$python" ] && "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    found=$$python; break; \
	  fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "clew needs Python 3.11 or newer; none was found. Install one, or name it: make PYTHON=/path/to/python" >&2; \
	  exit 1; \
	fi; \
	echo "installing clew and its tools into $(VENV) with $$found (once)"; \
	test -x $(BIN)/python || "$$found" -m venv $(VENV) || exit 1; \
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check -e '.[dev]' || exit 1; \
	touch $@

demo: $(STAMP) ## simulate a movie, learn from a quarter of its events, track it, report: into ./demo
	@$(BIN)/clew demo

test: $(STAMP) ## run all tests; those of the page in Chromium, which is installed if root runs this
	@scripts/browser || echo "the tests of the page are skipped, or fail where CI is set" >&2
	$(BIN)/pytest -n 2

check: $(STAMP) ## lint, format and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict src

cli-docs: $(STAMP) ## write docs/cli.md anew from the commands' own help
	$(BIN)/python tests/test_docs.py

clean: ## remove the environment and all that can be made again
	rm -rf $(VENV) build dist demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
