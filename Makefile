# The two commands:  make demo   make test
VENV ?= .venv
MINUTES ?= 15
WORKERS ?= 2
SESSION ?= session-demo

.PHONY: demo test check links clean
demo: $(VENV)/.ready
	$(VENV)/bin/kernelwright optimize --minutes $(MINUTES) --out $(SESSION)

test: $(VENV)/.ready-test
	$(VENV)/bin/pytest -n $(WORKERS) --dist loadfile -m "not alone"
	$(VENV)/bin/pytest -m alone

check: $(VENV)/.ready-test links
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

$(VENV)/.ready: pyproject.toml constraints.txt .ci/setup
	@.ci/setup $(VENV)
	@touch $@

$(VENV)/.ready-test: pyproject.toml constraints.txt .ci/setup
	@.ci/setup $(VENV) test
	@touch $@ $(VENV)/.ready

# Type checkers do not run import hooks: give them a folder that looks like the installed package.
links:
	@mkdir -p .src/kernelwright
	@for d in agent engine kernels profiles sandbox tui; do ln -sfn ../../$$d .src/kernelwright/$$d; done

clean:
	rm -rf .src build *.egg-info .pytest_cache .mypy_cache .ruff_cache
