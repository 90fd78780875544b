# make help lists what there is.
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup train test docs slurm check clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.installed ## make .venv and install minerva with the tested versions of constraints.txt

.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --disable-pip-version-check -c constraints.txt -e '.[dev,docs,envpool,optuna,export]'
	@touch $@

train: setup ## the main job: PPO on cheetah-run; others with ARGS="env=gymnasium/CartPole-v1 seed=1"
	$(BIN)/python train.py $(ARGS)

test: setup ## the tests, in about twenty minutes on two cores
	$(BIN)/python -m pytest -n auto --dist loadfile $(ARGS)

docs: setup ## the documentation into site/, which works from there; fails on what is broken or undocumented
	$(BIN)/python scripts/docs.py

slurm: setup ## the tests that need a SLURM, with one that is brought up for them; as root, on Debian
	scripts/slurm_test_cluster.sh up
	. $${SLURM_ROOT:-/tmp/minerva-slurm}/env.sh && $(BIN)/python -m pytest -m 'slurm and not slow' $(ARGS); \
		code=$$?; scripts/slurm_test_cluster.sh down; exit $$code

check: setup ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean: ## remove .venv and caches; outputs/ stays
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache site
