# Two commands: `make demo` and `make test`. Both make .venv from requirements.lock first.

PYTHON ?= python3
BIN := .venv/bin
LAKE ?= lake
SHELL := /bin/bash
export PATH := $(CURDIR)/$(BIN):$(PATH)
export FLYWHEEL_LAKE := $(LAKE)
# With this variable, every process that a test starts would compile our modules again.
unexport PYTHONDONTWRITEBYTECODE

THOROUGH := --hypothesis-profile thorough

.PHONY: demo test test-sample test-all lint docs pictures lock clean

$(BIN)/.installed: requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing the locked dependencies into .venv …"
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

# The whole loop on whatever device is here, in a minute or two on two quiet cores: import, judge one
# kernel of each of six tasks, a wrong one and a cheat, write a dataset, rank. Fewer calls, one other
# shape, and no robustness checks or profiles, which a first look can do without. The dataset is over
# the rows of the H200, since six kernels are too few to choose from.
DEMO := row_abs_deviation/vector_norm|layer_norm/native|diag_matmul/(broadcast|scales_columns)|triangular_matmul/block_rows|cross_entropy/native|batched_matmul/baddbmm|gelu_scale_bias/patched_clock
BRIEF := --calls 8 --no-robustness --no-diagnosis --draw-shapes 1 --first-call-s 5

demo: $(BIN)/.installed
	store import starter
	@echo 'evaluators run, on 8 of the kernels …'
	@evaluators run --where "regexp_matches(path, '($(DEMO))[.]py')" $(BRIEF)
	pipelines run contrastive-batch --device H200
	@echo
	@echo 'The kernels that were judged here:'
	@store query --file docs/learn/judged-here.sql
	kf
	@echo '(commands are in .venv/bin: export PATH=$$PWD/.venv/bin:$$PATH)'

# What every commit should pass: every kind of behavior at least once.
test: $(BIN)/.installed lint
	pytest -q -n 3 --dist worksteal -rfER --durations 10 -m "not slow"

# A sixth of the slow tests: by default the one that the hash of the tree chooses, with SIXTH=0 to
# SIXTH=5 any. Tests that have not started after SAMPLE_S seconds are skipped and named, and their
# files come in another order each time; a test that takes longer than TEST_S seconds fails, and its
# stack is printed.
SIXTH ?= $(or $(shell git rev-parse 'HEAD^{tree}' 2>/dev/null),0)
SAMPLE_S ?= 720
TEST_S ?= 600

test-sample: $(BIN)/.installed
	pytest -q -n 3 --dist worksteal -rfERs --no-fold-skipped --durations 10 $(THOROUGH) \
	  -o faulthandler_timeout=$(TEST_S) -o faulthandler_exit_on_timeout=true \
	  -m "slow and not large" --sixth $(SIXTH) --start-until $$(($$(date +%s) + $(SAMPLE_S)))

# All tests, with all parameters and examples: every candidate, honest ones three times over,
# compilers, kill -9 again and again, pyright on all folders; and tests of rows and pipelines once more
# with lakes on PostgreSQL.
test-all: $(BIN)/.installed lint
	pytest -q -n 3 --dist worksteal -rfER --durations 20 $(THOROUGH)
	FLYWHEEL_TEST_LAKES=server pytest -q -n 3 --dist worksteal -rfERs $(THOROUGH) tests/store tests/pipelines

lint: $(BIN)/.installed
	ruff check .
	ruff format --check .
	lint-imports

# Generated pages: docs/tables.md and docs/tables-verdicts.md.
docs: $(BIN)/.installed
	python -c "from store.cli import reference; from store.schema import catalog; print(reference.render_tables_page(catalog.load()), end='')" > docs/tables.md
	python -m evaluators.cli.reference

# All pictures of README and docs. RELEASE is a checkout of the CUDA-L1 release (docs/audit).
pictures: $(BIN)/.installed
	python benchmarks/pictures.py $(RELEASE)

# Writes the lock anew from pyproject.toml. torch carries no build tag, so that the CPU or the CUDA
# build of that version can serve.
lock:
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/pip install --quiet --upgrade pip
	.venv-lock/bin/pip install --quiet torch==2.13.0
	.venv-lock/bin/pip install --quiet --editable ".[all,dev]"
	.venv-lock/bin/pip freeze --exclude-editable | sed 's/^torch==\([^+]*\).*/torch==\1/' > requirements.lock
	rm -rf .venv-lock

clean:
	rm -rf lake datasets runs report .pytest_cache .ruff_cache .hypothesis .import_linter_cache
