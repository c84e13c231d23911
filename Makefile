# Two commands for a newcomer: `make demo` and `make test`. Both start from nothing but Python 3.11+.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOGITS ?= ../shared/data/logits
SAY_WHAT := pyproject.toml reproduction/pyproject.toml setup.py constraints.txt $(wildcard src/rhocal/numerics/_kernels*.[ch])

.PHONY: help demo test stubs figures lint types pytest defaults field-defaults learning-curve coverage comparison paper chains
.PHONY: quality bench parity bench-stream scale clean
.DEFAULT_GOAL := help

help:
	@echo "make demo      install rhocal into $(VENV), compare all methods on the shipped logits, write a report"
	@echo "make test      install the development extras, then lint, types and all tests"
	@echo "make stubs     write src/rhocal/__init__.pyi, the public names for type checkers"
	@echo "make figures   draw the gallery of the documentation again"
	@echo "make defaults  measure again why RhoNormScaling() has the defaults it has (LOGITS=folder of .npz)"
	@echo "make field-defaults  the same for FieldScaling()"
	@echo "make learning-curve  quality for tune sets of 100 to 10,000 samples"
	@echo "make coverage  how often intervals hold the truth, and whether p-values are uniform"
	@echo "make comparison  every method on every network: tidy rows, ranks, a Pareto plot (goes on where it was stopped)"
	@echo "make paper     every table and figure of the paper, the published numbers beside ours (goes on where it was stopped)"
	@echo "make chains    what the second stage of a chain should be fitted on"
	@echo "make quality   our methods beside probmetrics' on real networks"
	@echo "make bench     our speed beside the peers'"
	@echo "make parity    the same calibrator in NumPy, torch and ONNX"
	@echo "make bench-stream  files of 2 and 5 GB beside a plain pass over them"
	@echo "make scale     the cost model and simulation of docs/scale.md"
	@echo "make clean     remove $(VENV) and everything built"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The stamps make the second run quick: nothing is installed again until the files that say what to install change.
$(VENV)/.installed: $(SAY_WHAT) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[report]'
	@touch $@

$(VENV)/.installed-dev: $(SAY_WHAT) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' -e reproduction
	@touch $@ $(VENV)/.installed

demo: $(VENV)/.installed
	$(BIN)/rhocal demo -o build/demo

test: lint types pytest

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

# One thread for each process: two processes of many threads on few cores only wait for each other.
pytest: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto

stubs: $(VENV)/.installed-dev
	$(BIN)/python tests/support/stubs.py

figures: $(VENV)/.installed-dev
	$(BIN)/python experiments/gallery/gallery.py

defaults: $(VENV)/.installed-dev
	$(BIN)/python experiments/defaults/defaults.py --logits $(LOGITS)

field-defaults: $(VENV)/.installed-dev
	$(BIN)/python experiments/field/field.py --logits $(LOGITS)

learning-curve: $(VENV)/.installed-dev
	$(BIN)/python experiments/learning_curve/learning_curve.py --logits $(LOGITS)

coverage: $(VENV)/.installed-dev
	$(BIN)/python experiments/coverage/coverage.py

comparison: $(VENV)/.installed-dev
	$(BIN)/rhocal compare $(LOGITS)/*.npz --methods all --seeds 5 --resume --jobs 2 -o experiments/comparison/rows.csv
	$(BIN)/python experiments/comparison/render.py

paper: $(VENV)/.installed-dev
	$(BIN)/python reproduction/pages/paper_rows.py --logits $(LOGITS)
	$(BIN)/python reproduction/pages/paper_pages.py

chains: $(VENV)/.installed-dev
	$(BIN)/python experiments/chains/chains.py --logits $(LOGITS)

quality: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/quality/quality.py --logits $(LOGITS)

bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/speed/speed.py

parity: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/parity/parity.py

bench-stream: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/stream/stream.py

scale: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/scale/scale.py

clean:
	rm -rf $(VENV) build dist src/*.egg-info src/rhocal/numerics/_kernels*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
