# The two commands of the README are `make demo` and `make test`. Everything lives in .venv, made here.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests start hundreds of processes: each would compile the whole package anew.
unexport PYTHONDONTWRITEBYTECODE
SOURCES := voicebench tests examples
DEMO_OUT := demo-results

.PHONY: help install web browser check test test-fast test-counterparts demo bench soak screenshot clean

help:
	@echo "make demo    a mock agent, a master, two workers: sixteen calls at once, with a report"
	@echo "make test    formatting, types, and all tests"
	@echo "make test-fast | test-counterparts | bench (40 minutes) | soak (30 minutes) | screenshot | clean"

# Installed again only when the project's own description of itself changes.
$(VENV)/installed: pyproject.toml voicebench/__init__.py
	$(PYTHON) -c 'import sys; sys.exit("voicebench needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	@echo "installing into $(VENV), once: half a minute or so"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

install: $(VENV)/installed

# What checks the page: types and unit tests, where there is Node. Nothing of it is needed to use voicebench.
web:
	@if command -v npm >/dev/null; then \
	  cd web && npm install --no-package-lock --no-audit --no-fund --silent && npm run --silent check && npm run --silent test; \
	else echo "no Node here: the page's own checks are left out"; fi

# The browser that looks at it: Debian's.
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } \
	  || echo "no chromium here, and no right to install it: the page is not looked at (apt-get install chromium)"

check: install
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy

test-fast: install
	$(BIN)/python -m pytest -m "not slow" -n 2

# The fast ones first: they say sooner what is wrong. Most slow tests wait in real time, so three run side by side, a file to
# a process; those that look at our own lateness run alone. make stops at the first that fails, so the last line speaks
# for all.
test: check web browser
	$(BIN)/python -m pytest -m "not slow" -n 2
	$(BIN)/python -m pytest -m "slow and not alone" -n 3 --dist loadfile --durations 12
	$(BIN)/python -m pytest -m alone

# Against the single-machine package of the same name, in an environment of its own.
test-counterparts: install
	$(BIN)/python tests/support/counterparts.py

demo: install
	$(BIN)/python examples/demo.py $(DEMO_OUT)

# Figures with their budgets, each on lines of their own; about forty minutes, on a machine with nothing else to do.
# Agents and masters run on core 0, workers on core 1.
bench: install
	PYTHONPATH=. $(BIN)/python tests/bench/bench_startup.py
	PYTHONPATH=. $(BIN)/python tests/bench/bench_scoring.py
	PYTHONPATH=. $(BIN)/python tests/bench/bench_virtual.py
	PYTHONPATH=. $(BIN)/python tests/bench/bench_master.py
	PYTHONPATH=. $(BIN)/python tests/bench/bench_truth.py
	PYTHONPATH=. $(BIN)/python tests/bench/bench_page.py
	PYTHONPATH=. $(BIN)/python tests/bench/bench_memory.py
	PYTHONPATH=. $(BIN)/python tests/bench/bench_sessions_per_core.py

# 300 sessions for half an hour: fails when memory, descriptors, threads or lateness grow. MINUTES=120 for longer.
MINUTES ?= 30
soak: install
	PYTHONPATH=. $(BIN)/python tests/bench/soak.py --minutes $(MINUTES)

# The README's picture, from a real run of two minutes.
screenshot: install browser
	PYTHONPATH=. $(BIN)/python tests/support/screenshot.py

clean:
	rm -rf $(VENV) $(DEMO_OUT) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
