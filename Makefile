# Two commands are all a new machine needs: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export OPENBLAS_NUM_THREADS ?= 1
# What pip has to say of itself isn't news of this project.
export PIP_DISABLE_PIP_VERSION_CHECK ?= 1
export PIP_ROOT_USER_ACTION ?= ignore
# A line for each twentieth of the tests, in a log, too.
STEPS := -q -p tests.steps -o console_output_style=classic
# Each process takes a file after the other, in their order: tests of a file and a folder share what
# is slow to make (a Ray is started in each process).
JOBS ?= 2
SPREAD := -n $(JOBS) --dist loadfile --no-loadscope-reorder
INSTALL := $(BIN)/python -m pip install --quiet --no-input -e

.PHONY: demo test slow lint format excerpts bench docs mutants fuzz faults dist matrix foreign clean

# What users have; developers' tools come on top of it, in the same place.
$(VENV)/.demo: pyproject.toml
	@echo "Installing nki_dist into $(VENV), once (Ray, NumPy and SciPy are 150 MB to fetch)"
	@.ci/doing "making $(VENV)" $(PYTHON) -m venv $(VENV)
	@.ci/doing "pip installs what the demo needs" $(INSTALL) .
	@touch $@

$(VENV)/.ready: $(VENV)/.demo
	@echo "Installing what tests and linters need into $(VENV), once"
	@.ci/doing "pip installs the developers' tools" $(INSTALL) '.[dev]'
	@touch $@

demo: $(VENV)/.demo
	@$(BIN)/python examples/demo.py

test: $(VENV)/.ready
	$(BIN)/python -m pytest $(STEPS) $(SPREAD)

slow: $(VENV)/.ready
	$(BIN)/python -m pytest $(STEPS) -m slow

lint: $(VENV)/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# What README and docs say that their blocks print: make excerpts PAGES="profiles worlds".
excerpts: $(VENV)/.ready
	$(BIN)/python -m tests.pages $(PAGES)

bench: $(VENV)/.ready
	$(BIN)/python -m bench

# Tools of their own, so that `make test` on a new machine doesn't wait for them.
$(VENV)/.docs: $(VENV)/.ready
	@.ci/doing "pip installs the tools of make docs" $(INSTALL) '.[docs]'
	@touch $@

docs: $(VENV)/.docs
	$(BIN)/sphinx-build -q -E -W -n --keep-going -c docs . build/site

$(VENV)/.mutants: $(VENV)/.ready
	@.ci/doing "pip installs the tools of make mutants" $(INSTALL) '.[mutants]'
	@touch $@

mutants: $(VENV)/.mutants
	$(BIN)/python -m bench.mutants $(MUTANTS)

fuzz: $(VENV)/.ready
	$(BIN)/python -m bench.fuzz $(FUZZ)

# Interrupts, killed processes, short-lived threads: make faults FAULTS="--only interrupts --seed 7".
faults: $(VENV)/.ready
	$(BIN)/python -m tests.faults $(FAULTS)

$(VENV)/.dist: $(VENV)/.ready
	@.ci/doing "pip installs the tools of make dist" $(INSTALL) '.[dist]'
	@touch $@

# Both take what follows as pytest does: make dist DIST=tests/report, make matrix MATRIX="--rows 3.13-highest".
dist: $(VENV)/.dist
	$(BIN)/python -m release.dist $(DIST)

matrix: $(VENV)/.dist
	$(BIN)/python -m release.matrix $(MATRIX)

# What programs of the checkouts import. FOREIGN takes options: --quick, --only PART, --report, ...
$(VENV)/.foreign: $(VENV)/.ready bench/real_kernels/requirements.txt
	$(BIN)/python -m pip install --quiet -r bench/real_kernels/requirements.txt
	touch $@

foreign: $(VENV)/.foreign
	@test -d "$(NKI_REF)" || { echo "make foreign NKI_REF=DIR: the folder of the checkouts"; exit 2; }
	$(BIN)/python -m bench.real_kernels foreign $(NKI_REF) $(if $(LADDER),--ladder $(LADDER)) $(FOREIGN)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build *.egg-info
