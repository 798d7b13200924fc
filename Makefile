# Each target sets up what it needs: a virtual environment with packages from PyPI, no root, no system package.
PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.installed
# Most tests wait for processes, so several run at a time; who has nothing left takes from the others.
PYTEST_ARGS ?= -n 4 --dist worksteal

# Where nothing compiled may be kept, every process that a test starts compiles the package again, and pytest the tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check docs clean

demo: $(STAMP)
	$(VENV)/bin/scrapy-lease demo

test: $(STAMP)
	$(VENV)/bin/pytest $(PYTEST_ARGS)

check: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

docs: $(STAMP)
	$(VENV)/bin/python -m scrapy_lease.settings > docs/settings.md

clean:
	rm -rf $(VENV) build *.egg-info

# Debian's python3 may come without ensurepip; its pip can then fill the environment from outside.
$(STAMP): setup.cfg pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=...")'
	$(PYTHON) -m venv --clear $(VENV) 2>/dev/null || { \
		$(PYTHON) -m venv --clear --without-pip $(VENV) && \
		$(PYTHON) -m pip --python $(VENV)/bin/python install --quiet pip; }
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[example,test,check]'
	touch $(STAMP)
