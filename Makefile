# Two commands: `make demo` and `make test`. Both set up what they need in .venv and start at once the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find src -name '*.py' -o -name '*.toml' -o -name py.typed)

.PHONY: demo test check lint format bench clean

demo: $(VENV)/installed
	$(BIN)/antiphon demo

test: check
	$(BIN)/python -m pytest -n 2

# Formatting, lint and strict types, over sources, tests, examples and benchmarks.
check: $(VENV)/installed
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy

format: $(VENV)/tools
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/installed
	$(BIN)/antiphon bench simulator

clean:
	rm -rf $(VENV) build src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

PIP := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check
# What the package needs and its extras `spark` and, on a machine without Java 17 or newer, `java`, one per line.
DEPENDENCIES := import sys, tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	print(*project["dependencies"], *(d for e in sys.argv[1:] for d in project["optional-dependencies"][e]), sep="\n")
JAVA_EXTRA := $(shell java -version 2>&1 | grep -Eq 'version "(1[7-9]|[2-9][0-9])' || echo java)

$(VENV)/tools: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Antiphon needs Python 3.11 or newer; run: make PYTHON=python3.11" >&2; exit 1; }
	@echo "Setting up .venv (once, a few minutes: Apache Spark alone is 450 MB)"
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip "setuptools>=77,<90"
	$(PIP) --group dev
	$(BIN)/python -c '$(DEPENDENCIES)' spark $(JAVA_EXTRA) > $(VENV)/dependencies.txt
	$(PIP) --requirement $(VENV)/dependencies.txt
	touch $@

# The package is installed as a copy, compiled where a C compiler exists; src/ itself stays plain Python.
$(VENV)/installed: $(VENV)/tools setup.py $(SOURCES)
	@echo "Building Antiphon"
	rm -rf build/lib* build/bdist*
	$(PIP) --no-build-isolation --force-reinstall --no-deps .
	touch $@
