# Two commands matter: `make run` and `make test`. Both keep their environment in .venv,
# reuse it when it is current, and say on standard error what they are doing.
.DEFAULT_GOAL := help
BIN := .venv/bin
ARGS ?=
SOAKED := tests/soak tests/daemon/test_kill_loops.py tests/daemon/test_stage_life.py \
	tests/coordination/test_fence_store.py tests/e2e/test_cycles.py
FAST := not native and not process and not slow

.PHONY: help run test test-fast bench soak lint format lock native clean \
	environment-run environment-dev

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

run: environment-run ## ask a question of a model cut into three stages, and keep serving
	@exec $(BIN)/skippyd demo $(ARGS)

test: environment-dev ## everything: linters, types, unit, native and process tests
	@exec packaging/test.sh $(ARGS)

test-fast: environment-dev ## what needs no native code and no processes, under 90 s
	@exec $(BIN)/python -m pytest -m "$(FAST)" $(ARGS)

bench: environment-dev ## measure; the last line of standard output is JSON
	-@$(BIN)/python tests/bench/planner_growth.py >&2
	-@PYTHONPATH=tests $(BIN)/python tests/simulation/bench.py >&2
	-@PYTHONPATH=tests $(BIN)/python tests/simulation/async_bench.py >&2
	-@PYTHONPATH=tests $(BIN)/python tests/bench/node_figures.py >&2
	@exec $(BIN)/skippyd bench $(ARGS)

soak: environment-dev ## what `make test` runs a tenth of: kills, cycles, examples
	@SKIPPY_SOAK=1 $(BIN)/python -m pytest $(SOAKED) $(ARGS)
	@SKIPPY_HYPOTHESIS_PROFILE=soak exec $(BIN)/python -m pytest -m "not native and not process" $(ARGS)

lint: environment-dev ## format check, lint, types, import contracts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: environment-dev ## rewrite the files as the formatter wants them
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

lock: ## resolve the newest allowed versions into both lock files
	@packaging/lock.sh

native: environment-run ## compile the native part if its source changed

environment-run:
	@packaging/environment.sh run

environment-dev:
	@packaging/environment.sh dev

clean: ## remove the environment and everything built
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache \
		.import_linter_cache .hypothesis .coverage*
	rm -f skippyd/runtime/llama/libskippy_native.so*
	find skippyd skippyctl tests -name __pycache__ -type d -prune -exec rm -rf {} +
