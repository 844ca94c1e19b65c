# Two commands are all a new machine needs: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: demo test slow lint format bench docs mutants fuzz dist matrix foreign clean

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	touch $@

demo: $(VENV)/.ready
	$(BIN)/python examples/demo.py

test: $(VENV)/.ready
	$(BIN)/python -m pytest -q

slow: $(VENV)/.ready
	$(BIN)/python -m pytest -q -m slow

lint: $(VENV)/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.ready
	$(BIN)/python -m bench

# Tools of their own, so that `make test` on a new machine doesn't wait for them.
$(VENV)/.docs: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet -e '.[docs]'
	touch $@

docs: $(VENV)/.docs
	$(BIN)/sphinx-build -q -E -W -n --keep-going -c docs . build/site

$(VENV)/.mutants: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet -e '.[mutants]'
	touch $@

mutants: $(VENV)/.mutants
	$(BIN)/python -m bench.mutants $(MUTANTS)

fuzz: $(VENV)/.ready
	$(BIN)/python -m bench.fuzz $(FUZZ)

$(VENV)/.dist: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet -e '.[dist]'
	touch $@

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
