# The command menu: `make` lists it. Works with the make 3.81 that macOS has.

BIN := .venv/bin
# More for pytest: make test ARGS="-x tests/ui"
ARGS ?=
# Three test files at a time: many tests wait for a child process or a timer. make test JOBS=0 runs one after the
# other in this process.
# A test process that crashes ends the run: pytest-xdist would wait for ever for the rest of its file.
JOBS ?= 3
# What `make quick` runs: exact tests without a real model or a window; make quick QUICK=tests/chat runs others.
# Left out is what takes longest of it, by the beginning of its name.
QUICK ?= tests/files tests/inference/api tests/inference/auto tests/inference/benchmark tests/inference/decoding \
	tests/inference/drafting tests/inference/verification
NOT_QUICK := auto/test_auto_iterator auto/test_heads auto/test_planner.py::test_learning \
	auto/test_auto_drafter benchmark/test_runner decoding/test_device_waits \
	decoding/test_rounds.py::test_drafts_do_not_change_the_text_of_other \
	drafting/heads/test_block_head drafting/test_draft_model drafting/test_head_drafter.py::test_the_text_is \
	drafting/test_quantised_targets verification/test_capability
# The tests draw into memory; QT_QPA_PLATFORM=xcb or =cocoa shows their windows.
QT_QPA_PLATFORM ?= offscreen
# Where the shell tells Python to keep no compiled modules, each test process and each child would compile all anew.
export PYTHONDONTWRITEBYTECODE :=
PYTEST = QT_QPA_PLATFORM=$(QT_QPA_PLATFORM) OPENBLAS_NUM_THREADS=1 \
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --max-worker-restart=0
# The tests of modules that ask whether they run on a Mac: they run once more, as on one.
ASKING = $(wildcard $(shell grep -rlF host.MACOS rdchat | sed -E 's|^rdchat/(.*/)?([^/]+)$$|tests/\1test_\2|'))
AS_ON_A_MAC = $(PYTEST) -p tests.as_on_a_mac -m 'not slow'

FORMS = $(filter-out %/config.yml, $(wildcard .github/ISSUE_TEMPLATE/*.yml))
CHECKS := check-format check-lint check-types check-layers check-shell check-files check-pages check-workflow check-constraints

.DEFAULT_GOAL := help
.PHONY: help setup run test coverage test-slow test-engine quick check bench families app release constraints format $(CHECKS)

help: ## List the commands
	@echo "rdchat"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F '|' '{ printf "%-18s %s\n", $$1, $$2 }'

setup: ## Install everything: system packages, .venv, the default model
	@bash scripts/setup.sh

run: setup ## Open the app
	@$(BIN)/rdchat

test: setup ## Run the tests, but for the long ones
	@$(PYTEST) -m 'not slow' $(ARGS)
	@$(if $(ARGS),,$(AS_ON_A_MAC) $(ASKING))

coverage: setup ## Run the same tests, and list the lines that none of them runs
	@$(PYTEST) -m 'not slow' --cov --cov-report=term $(ARGS)

test-slow: setup ## Run the long tests: real models, whole trainings, kills, whole grids
	@bash scripts/system-packages.sh fonts-noto-core fonts-liberation || echo "Tests with other fonts may be skipped." >&2
	@$(PYTEST) -m slow $(ARGS)
	@$(if $(ARGS),,$(AS_ON_A_MAC))

test-engine: setup ## Run the engine's tests alone: no Qt, no window
	@$(PYTEST) -p no:pytest-qt -p tests.without_qt -m 'not slow' tests/inference $(ARGS)

quick: setup ## Run the fast, exact tests in under a minute: no real model, no window
	@$(PYTEST) -q -m 'not slow' $(NOT_QUICK:%='--deselect=tests/inference/%') $(QUICK) $(ARGS)

check: setup ## Check format, lint, types, layers, scripts, files, pages, the workflow and constraints
	@$(MAKE) --no-print-directory -k $(CHECKS)

bench: setup ## Measure speed beside mlx-lm, drafting, caches on disk, the server, ranks, and the window's smoothness
	@$(BIN)/rdchat bench --modes off,drafter --trials 4
	@$(BIN)/rdchat bench --prompts scripts/auto_prompts.jsonl --modes off,drafter --beam-width 1,4 \
		--lookup-branch on,off --trials 1 --max-tokens 96 --no-mlx-lm
	@$(BIN)/rdchat bench --prompts scripts/short_prompts.jsonl --modes off,auto --trials 2 --max-tokens 24 --no-mlx-lm
	@$(BIN)/rdchat bench --prompts scripts/auto_prompts.jsonl --modes off,auto,prompt-lookup --trials 1 \
		--max-tokens 64 --no-mlx-lm
	@PYTHONPATH=. $(BIN)/python -m tests.inference.state_host_times
	@$(BIN)/python scripts/bench_kept_caches.py
	@$(BIN)/python scripts/bench_server.py
	@$(BIN)/python scripts/bench_ranks.py
	@QT_QPA_PLATFORM=offscreen $(BIN)/python scripts/bench_transcript.py

# A Python that torch has packages for, what is installed as torch, and where the models and results go (7 GB).
FAMILIES_PYTHON ?= python3
TORCH ?= torch
FAMILIES ?= build/families

families: setup ## Compare every model type with transformers (docs/families.md); installs torch; ARGS="llama phi"
	@test -x $(FAMILIES)/torch/bin/python || $(FAMILIES_PYTHON) -m venv $(FAMILIES)/torch
	@$(FAMILIES)/torch/bin/python -m pip install -q $(TORCH) numpy "$$($(BIN)/python -m pip freeze | grep '^transformers==')"
	@$(FAMILIES)/torch/bin/python scripts/families/make.py $(FAMILIES)/models \
		$(or $(ARGS),$$($(BIN)/python scripts/families/compare.py types))
	@$(BIN)/python scripts/families/compare.py run $(FAMILIES)/models $(ARGS)
	@$(BIN)/python scripts/families/compare.py table $(FAMILIES)/models
	@PYTHONPATH=. $(FAMILIES)/torch/bin/python scripts/families/towers.py make $(FAMILIES)/towers
	@PYTHONPATH=. $(BIN)/python scripts/families/towers.py compare $(FAMILIES)/towers
	@echo "Put the tables into docs/families.md, then run scripts/families_page.py."

app: ## Build the double-clickable app and its disk image, on a Mac
	@[ "$$(uname -s)" != Darwin ] || $(MAKE) --no-print-directory setup
	@bash scripts/build-app.sh

release: setup ## Build and check what a release consists of; docs/releasing.md says what comes next
	@bash scripts/release.sh

format: ## Format the code and mend what ruff can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

constraints: ## Pin the newest versions of all packages in constraints.txt
	@$(BIN)/python scripts/constraints.py

check-format:
	@$(BIN)/ruff format --check .

check-lint:
	@$(BIN)/ruff check .

check-types: # as Linux and as macOS have it, wherever it runs
	@for system in linux darwin; do \
		$(BIN)/mypy --platform $$system && \
		$(BIN)/mypy --platform $$system scripts/*.py tests/server/*.py tests/server/interfaces/*.py && \
		$(BIN)/mypy --platform $$system -p scripts.drafter -p scripts.seeing || exit 1; \
	done

check-layers:
	@$(BIN)/lint-imports

check-shell:
	@for script in scripts/*.sh .ci/run; do bash -n $$script || exit 1; done
	@$(BIN)/shellcheck scripts/*.sh .ci/run

check-files:
	@$(BIN)/python scripts/check_files.py

check-pages:
	@$(BIN)/python scripts/families_page.py --check

check-constraints:
	@$(BIN)/python scripts/constraints.py --check

check-workflow:
	@$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	@$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms $(FORMS)
