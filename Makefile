# make demo and make test work on a fresh machine: each makes its own environment first.

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# the versions that development uses; `make LOCK= test` takes the newest that pyproject.toml allows
LOCK ?= requirements-dev.lock
# Bytecode is kept, whatever the environment says: without it every process compiles all that it imports, and starting one
# takes more than twice as long.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
# tests that compare numbers: they are run once more with another BLAS kernel
NUMERICAL := tests/learning tests/models tests/estimators tests/tracking/assignment tests/tracking/candidates tests/tracking/flow tests/tracking/training tests/tracking/test_tracker.py tests/tracking/test_solve.py

# Four processes on two cores, for that with the tests of the page waits for a browser much of the time, and others wait
# for processes that they start. Files are given out in order (tests/conftest.py), so that the page's, which take
# longest, come early.
SHARED := -n 4 --no-loadscope-reorder

.PHONY: dist fuzz help demo test test-napari slow check kernels paper paper-quick docs cli-docs lock clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' | awk -F'|' '{printf "  make %-12s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml $(LOCK)
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
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check $(LOCK:%=-c %) uv \
	  && $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python $(LOCK:%=-c %) -e '.[dev]' \
	  || $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check $(LOCK:%=-c %) -e '.[dev]' || { \
	  echo "could not install; make LOCK= takes other versions than those of $(LOCK)" >&2; exit 1; }; \
	touch $@

demo: $(STAMP) ## simulate a movie, learn from a quarter of its events, track it, report: into ./demo
	@$(BIN)/clew demo

test: $(STAMP) ## run all tests but the slow ones; those of the page in Chromium, which is installed if root runs this
	@scripts/browser || echo "the tests of the page are skipped, or fail where CI is set" >&2
	$(BIN)/pytest $(SHARED)

NAPARI_VENV ?= .venv-napari
test-napari: $(STAMP) ## run the tests of the napari plugin in an environment with napari, under a virtual display
	@test -x $(NAPARI_VENV)/bin/napari || { $(BIN)/uv venv --quiet --python $(BIN)/python $(NAPARI_VENV) && \
	  $(BIN)/uv pip install --quiet --python $(NAPARI_VENV)/bin/python $(LOCK:%=-c %) -e '.[napari,page]' pytest hypothesis napari-track-edit; }
	@command -v xvfb-run >/dev/null || { echo "xvfb-run is missing; install the package xvfb" >&2; exit 1; }
	@xvfb-run -a $(NAPARI_VENV)/bin/python -c "from qtpy.QtWidgets import QApplication; QApplication([])" 2>/dev/null || { \
	  echo "Qt cannot start; install the packages libxcb-icccm4 libxcb-image0 libxcb-keysyms1 libxcb-render-util0" \
	  "libxkbcommon-x11-0 libxcb-cursor0 libxcb-shape0 libxcb-xinerama0" >&2; exit 1; }
	PYTHONPATH=. xvfb-run -a -s "-screen 0 1400x1000x24" $(NAPARI_VENV)/bin/python -m pytest tests/napari

slow: $(STAMP) ## run the slow tests: the full sweeps of what make test samples, and all examples of hypothesis
	@scripts/browser || true
	CLEW_THOROUGH=1 $(BIN)/pytest $(SHARED) -m "slow or hypothesis"

check: $(STAMP) ## lint, format and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict

kernels: $(STAMP) ## run the numerical tests with another BLAS kernel than this machine's own
	@kernel=$$($(BIN)/python scripts/other_kernel.py) || exit 0; \
	echo "OPENBLAS_CORETYPE=$$kernel pytest $(NUMERICAL)"; \
	OPENBLAS_CORETYPE=$$kernel $(BIN)/pytest $(SHARED) $(NUMERICAL)

paper: $(STAMP) ## run the experiments of the paper: results/report.html, in hours
	$(BIN)/python -m paper -o results

# Fits from w = 0 end in one of several minima, and rounding decides in which: the BLAS kernel is the same everywhere.
paper-quick: $(STAMP) ## run a small edition of the experiments and compare its claims with paper/claims_quick.json
	OPENBLAS_CORETYPE=Haswell $(BIN)/python -m paper --quick -o results-quick --compare paper/claims_quick.json

docs: $(STAMP) ## build the documentation site: open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "built: site/index.html"

lock: $(STAMP) ## write requirements-dev.lock anew: the newest versions that pyproject.toml allows
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --extra dev --extra bench --upgrade --no-emit-index-url --no-header pyproject.toml -o requirements-dev.lock

dist: $(STAMP) ## build the wheel and the sdist into dist/
	$(BIN)/uv build --quiet --out-dir dist
	@ls dist

SECONDS ?= 60
fuzz: $(STAMP) ## feed every reader files, and every call arguments, that are nearly right, for SECONDS=60; findings are kept in .fuzz
	$(BIN)/python benchmarks/fuzz.py --seconds $(SECONDS)

cli-docs: $(STAMP) ## write docs/cli.md anew from the commands' own help
	$(BIN)/python tests/test_docs.py

clean: ## remove the environment and all that can be made again
	rm -rf $(VENV) $(NAPARI_VENV) build dist demo results results-quick site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
