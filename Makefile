# Two commands: `make demo` and `make test`. Both set up what they need in .venv and start at once the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find src -name '*.py' -o -name '*.c' -o -name py.typed)
LABORATORY := $(shell find research/antiphon_lab -type f -not -name '*.pyc')

.PHONY: demo test quick campaign check format bench site dist dist-check constraints clean

demo: $(VENV)/installed
	$(BIN)/antiphon demo

# Many tests wait for timers and other processes: three of them at a time keep two cores busy.
test: check $(VENV)/site-tools
	$(BIN)/python -m pytest -n 3

# What a change should pass before anything else: no Spark, hardly any processes, under a minute on two cores.
quick: $(VENV)/installed
	$(BIN)/ruff check --quiet .
	$(BIN)/python -m pytest -n 2 -q -m "not slow and not campaign" $(QUICK)
QUICK := tests/kernel tests/orders tests/trace tests/audit tests/fabrics tests/simulator tests/test_layout.py tests/test_import_direction.py \
	--ignore=tests/audit/spark --ignore=tests/audit/streaming --ignore=tests/fabrics/tree/test_campaign.py

# The long matrices, of which `make test` runs small cases: browsers, databases, foreign clients, many seeds.
campaign: $(VENV)/installed
	$(BIN)/python -m pytest -n 2 -m campaign

# Formatting, lint and strict types, over sources, tests, examples and benchmarks.
check: $(VENV)/installed
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy

format: $(VENV)/tools
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The documentation as a site that needs no network: open build/site/index.html.
site: $(VENV)/site-tools
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

bench: $(VENV)/installed
	$(BIN)/antiphon bench simulator

# The archives to publish: of the product (sources, compiled, plain Python), of the client alone, and of the laboratory.
dist: $(VENV)/tools
	rm -rf dist build/plain
	$(BIN)/python -W ignore setup.py --quiet sdist --dist-dir dist bdist_wheel --dist-dir dist
	ANTIPHON_PURE=1 $(BIN)/python -W ignore setup.py --quiet build --build-base build/plain bdist_wheel --dist-dir dist
	cd client && ../$(BIN)/python -W ignore setup.py --quiet bdist_wheel --dist-dir ../dist
	cd research && ../$(BIN)/python -W ignore setup.py --quiet bdist_wheel --dist-dir ../dist

# Install each archive into an empty environment with pip, and try it there. Needs an index of packages.
dist-check: $(VENV)/installed dist
	$(BIN)/python -m tests.distributions dist

# Take the newest versions that pyproject.toml allows; run `make test` before you commit the file.
constraints: $(VENV)/tools
	mkdir -p build
	$(BIN)/python -c '$(DEPENDENCIES)' spark java > build/needed.txt
	$(INSTALL) --dry-run --ignore-installed --report build/resolved.json --upgrade pip $(SETUPTOOLS) \
		--group dev --group site --requirement build/needed.txt
	$(BIN)/python -c '$(RESOLVED)' > build/constraints.txt
	mv build/constraints.txt constraints.txt
RESOLVED := import json; found = [each["metadata"] for each in json.load(open("build/resolved.json"))["install"]]; \
	print("\# The exact versions that were tested; made by: make constraints"); \
	print(*sorted(each["name"].lower().replace("_", "-") + "==" + each["version"] for each in found), sep="\n")

clean:
	rm -rf $(VENV) build dist client/build client/dist research/build src/*.egg-info research/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

INSTALL := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check
# The exact versions that were tested. Others in the ranges of pyproject.toml: make CONSTRAINTS=
CONSTRAINTS := --constraint constraints.txt
# If an index does not have one of these versions, others in the ranges serve as well.
pip = $(INSTALL) $(CONSTRAINTS) $(1) || { echo "Not all tested versions can be had; installing others that fit" >&2; $(INSTALL) $(1); }
SETUPTOOLS := "setuptools>=77,<90"
# What both distributions need and the extras `spark` and, on a machine without Java 17 or newer, `java`, one per line.
DEPENDENCIES := import sys, tomllib; projects = [tomllib.load(open(f, "rb"))["project"] for f in ("pyproject.toml", "research/pyproject.toml")]; \
	needed = [d for p in projects for d in p["dependencies"] if not d.startswith("antiphon")]; \
	print(*needed, *(d for e in sys.argv[1:] for d in projects[0]["optional-dependencies"][e]), sep="\n")
JAVA_EXTRA := $(shell java -version 2>&1 | grep -Eq 'version "(1[7-9]|[2-9][0-9])' || echo java)

$(VENV)/tools: pyproject.toml research/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Antiphon needs Python 3.11 or newer; run: make PYTHON=python3.11" >&2; exit 1; }
	@echo "Setting up .venv (once, a few minutes: Apache Spark alone is 450 MB)"
	$(PYTHON) -m venv $(VENV)
	@$(call pip,--upgrade pip $(SETUPTOOLS))
	$(BIN)/python -c '$(DEPENDENCIES)' > $(VENV)/dependencies.txt
	@$(call pip,--group dev --requirement $(VENV)/dependencies.txt)
	touch $@

# The largest download. Nothing is compiled with it, so it is installed while the compiler works.
$(VENV)/spark: $(VENV)/tools
	$(BIN)/python -c '$(DEPENDENCIES)' spark $(JAVA_EXTRA) > $(VENV)/with-spark.txt
	@$(call pip,--requirement $(VENV)/with-spark.txt)
	touch $@

$(VENV)/site-tools: $(VENV)/tools
	@$(call pip,--group site)
	touch $@

# Both packages are installed as copies, compiled where a C compiler exists; the sources stay plain Python.
WHEEL := $(BIN)/python -W ignore setup.py --quiet bdist_wheel --compression stored --dist-dir

$(VENV)/built: $(VENV)/tools setup.py research/setup.py compiling.py slicing.py $(SOURCES) $(LABORATORY)
	@echo "Building Antiphon: about a minute on two cores, or some seconds if little has changed"
	rm -rf build/lib* build/bdist* build/wheels research/build
	$(BIN)/python compiling.py
	$(WHEEL) build/wheels & (cd research && ../$(WHEEL) ../build/wheels) && wait $$!
	touch $@

$(VENV)/installed: $(VENV)/tools setup.py research/setup.py compiling.py slicing.py $(SOURCES) $(LABORATORY)
	@$(MAKE) --no-print-directory --jobs 2 $(VENV)/built $(VENV)/spark
	@$(call pip,--force-reinstall --no-deps --no-compile build/wheels/*.whl)
	touch $@
