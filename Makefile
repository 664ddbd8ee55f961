# Two commands to begin with:
#   make demo    sets everything up, runs the main job to its end on real data
#   make test    sets everything up, runs every test
# Others: up, check, bench, openapi, recipes, migration, docs, lock, clean. `make help` prints them.

VENV := .venv
BIN := $(VENV)/bin
RECIPES := src/starverse/app/images/recipes
PYTEST_WORKERS ?= 2
TESTS ?= tests
ARGS ?=
CARDS ?=
DB ?=
ENGINE ?=
export PYTHON

.DEFAULT_GOAL := help
.PHONY: help demo test up check bench openapi recipes migration docs lock clean setup setup-dev

help: ## List these commands.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:
	@sh scripts/setup.sh demo

setup-dev:
	@sh scripts/setup.sh dev

demo: ## Run the main job end to end on real data and print what it proves; ENGINE=slurm, DB=postgresql.
	@sh scripts/setup.sh demo $(ENGINE) $(DB)
	@$(BIN)/starverse demo $(if $(ENGINE),--engine $(ENGINE)) $(if $(DB),--db $(DB)) $(ARGS)

up: setup ## Serve the product on its persistent data folder: make up CARDS=rtx4090:8
	@$(BIN)/starverse up $(if $(CARDS),--declare-cards $(CARDS)) $(ARGS)

test: setup-dev ## Run every test; ARGS go to pytest, TESTS names a part.
	@$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS) $(TESTS)

check: setup-dev ## Lint, format, types, import directions, dependencies.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/deptry src
	$(BIN)/vulture

bench: setup-dev ## Run every measurement; ARGS go to each (NAMES picks some, DATA names the traces).
	@$(BIN)/python -m benchmarks $(if $(DATA),--data $(DATA)) $(NAMES) $(ARGS)

openapi: setup-dev ## Write docs/openapi.json from the code.
	@$(BIN)/python -m starverse.http.openapi docs/openapi.json

recipes: setup-dev ## Pin the packages of the shipped images anew, with their hashes.
	@for name in numpy pytorch tensorflow jupyter; do \
		$(BIN)/uv pip compile -q --upgrade --python-version 3.11 --only-binary :all: --generate-hashes \
			--no-header --no-annotate -o $(RECIPES)/$$name.txt $(RECIPES)/$$name.in || exit 1; \
	done

docs: openapi ## Write every page that is made from code: settings, errors, openapi.
	@$(BIN)/python -m starverse.testing.reference_pages

migration: setup-dev ## Make a database migration from the tables: make migration NAME="add disks"
	@$(BIN)/python scripts/new_migration.py "$(NAME)"

lock: ## Rewrite requirements/*.txt from pyproject.toml and requirements/*.in.
	@sh scripts/lock.sh

clean: ## Remove what these commands made, the virtual environment too.
	rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
