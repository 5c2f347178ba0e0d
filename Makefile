# `make demo` and `make test` need Python 3.11 or newer, git and make; everything else goes into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# The referee lives apart, so that `make test` stays without torch.
VMAS_VENV := .venv-vmas
VMAS_BIN := $(VMAS_VENV)/bin

# So do Ray, Weights & Biases and JaxMARL, which bring many packages.
EXTRAS_VENV := .venv-extras
EXTRAS_BIN := $(EXTRAS_VENV)/bin

# And PyTorch with TorchRL and BenchMARL.
TORCH_VENV := .venv-torch
TORCH_BIN := $(TORCH_VENV)/bin

# And Sphinx.
SITE_VENV := .venv-site
SITE_BIN := $(SITE_VENV)/bin

# And what builds and checks a release.
RELEASE_VENV := .venv-release
RELEASE_BIN := $(RELEASE_VENV)/bin

# And what drives a browser; node and Chromium are the system's.
WEB_VENV := .venv-web
WEB_BIN := $(WEB_VENV)/bin

# Pinned versions, compiled as they are installed: where PYTHONDONTWRITEBYTECODE is set, as in many containers, every
# process would otherwise compile them again.
INSTALL := -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Tests start hundreds of processes, which need not compile the package again each.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-long test-kernels test-optimised test-crashes test-methods test-vmas test-extras test-torch site test-site test-release test-web test-fleet lint clean

demo: $(VENV)/.installed
	$(BIN)/diamond demo

test: $(VENV)/.installed-for-tests lint
	$(BIN)/python -m pytest -m 'not long and not kernels' -n auto --maxprocesses 4 --dist loadfile

# What trains, benches or films for ten seconds and more.
test-long: $(VENV)/.installed-for-tests
	$(BIN)/python -m pytest tests -m long -n auto --maxprocesses 4 --dist loadfile

# Kernels of battles on the large maps, and whether Triton takes them; minutes each.
test-kernels: $(VENV)/.installed-for-tests
	$(BIN)/python -m pytest tests/smaclite/test_battle_kernels.py -m kernels --timeout 1800

# The same arithmetic as XLA compiles it for users; `make test` asks it for programs that compile quickly instead. Both
# share one cache, since the flags are part of a program's name there.
test-optimised: $(VENV)/.installed-for-tests
	XLA_FLAGS= $(BIN)/python -m pytest tests -m optimised -n auto --maxprocesses 4 --dist loadfile

# Every crash point and every damaged file, of which `make test` takes a sample.
test-crashes: $(VENV)/.installed-for-tests
	DIAMOND_ALL_CRASH_POINTS=1 $(BIN)/python -m pytest tests/test_crash_points.py tests/test_mutated_files.py -n auto \
	  --maxprocesses 4 --dist load

# Every baseline from its first step to its export, of which `make test` takes two.
test-methods: $(VENV)/.installed-for-tests
	DIAMOND_ALL_METHODS=1 $(BIN)/python -m pytest tests/test_baselines.py -k like_any_method -n auto --maxprocesses 4

# The first line fails where VMAS cannot be imported; pytest would only leave the tests out.
test-vmas: $(VMAS_VENV)/.installed
	$(VMAS_BIN)/python -c 'import vmas.simulator.environment'
	$(VMAS_BIN)/python -m pytest tests/vmas

# The first line fails where one of them cannot be imported; pytest would only leave the tests out.
test-extras: $(EXTRAS_VENV)/.installed
	$(EXTRAS_BIN)/python -c 'import ray, wandb, jaxmarl'
	$(EXTRAS_BIN)/python -m pytest tests/extras tests/adapters/test_jaxmarl.py tests/adapters/test_other_frameworks_page.py

# The first line fails where one of them cannot be imported; pytest would only leave the tests out.
test-torch: $(TORCH_VENV)/.installed
	$(TORCH_BIN)/python -c 'import benchmarl, torchrl, vmas'
	$(TORCH_BIN)/python -m pytest tests/pytorch -n auto --maxprocesses 4 --dist loadfile
# The live page and the page for runs: their arithmetic under node, their controls in Chromium.
test-web: $(WEB_VENV)/.installed
	@for program in node chromium; do command -v $$program >/dev/null || \
	  { echo "$$program is missing; on Debian: apt-get install nodejs chromium" >&2; exit 2; }; done
	$(WEB_BIN)/python -c 'import playwright'
	$(WEB_BIN)/python -m pytest tests/web

# Robots in network namespaces and over an MQTT broker, which `make test` leaves out where the system has none.
test-fleet: $(VENV)/.installed-for-tests
	@for program in ip mosquitto; do PATH=$$PATH:/usr/sbin:/sbin command -v $$program >/dev/null || \
	  { echo "$$program is missing; on Debian: apt-get install iproute2 mosquitto" >&2; exit 2; }; done
	$(BIN)/python -m pytest tests/test_robot_transports.py tests/test_fleet_page.py -rs

# Look at it with `python -m http.server -d build/site`. A warning is an error: a link to nowhere, a page in no list, a
# block that fails.
site: $(SITE_VENV)/.installed
	$(SITE_BIN)/sphinx-build --fail-on-warning --keep-going --quiet --fresh-env -c docs/site -b html . build/site

test-site: site
	$(SITE_BIN)/python -m pytest tests/site

# The files for a package index, in empty environments of each of these Pythons; one that is not here is a failure.
PYTHONS := 3.11 3.12 3.13
test-release: $(RELEASE_VENV)/.installed
	DIAMOND_PYTHONS="$(PYTHONS)" $(RELEASE_BIN)/python -m pytest --confcutdir tests/release tests/release/test_release.py

lint: $(VENV)/.installed-for-tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(VENV)/bin/python $(VMAS_VENV)/bin/python $(EXTRAS_VENV)/bin/python $(TORCH_VENV)/bin/python $(SITE_VENV)/bin/python $(RELEASE_VENV)/bin/python $(WEB_VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is too old: Python 3.11 or newer is needed; name one with make PYTHON=python3.12" >&2; exit 2; }
	$(PYTHON) -m venv $(@D)/..

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python $(INSTALL) --editable .
	@touch $@

$(VENV)/.installed-for-tests: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python $(INSTALL) --editable '.[test]'
	@touch $(VENV)/.installed $@

# torch without CUDA: the plain wheel where pip finds one, else name it with PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL.
$(VMAS_VENV)/.installed: $(VMAS_VENV)/bin/python pyproject.toml constraints.txt
	$(VMAS_BIN)/python $(INSTALL) --editable '.[test,vmas]'
	@touch $@

$(EXTRAS_VENV)/.installed: $(EXTRAS_VENV)/bin/python pyproject.toml constraints.txt
	$(EXTRAS_BIN)/python $(INSTALL) --editable '.[test,ray,wandb,jaxmarl]'
	@touch $@

# torchvision, which BenchMARL asks for, is pinned with torch, else pip replaces both by builds for CUDA.
$(TORCH_VENV)/.installed: $(TORCH_VENV)/bin/python pyproject.toml constraints.txt
	$(TORCH_BIN)/python $(INSTALL) --editable '.[test,benchmarl]'
	@touch $@

$(WEB_VENV)/.installed: $(WEB_VENV)/bin/python pyproject.toml constraints.txt
	$(WEB_BIN)/python $(INSTALL) --editable '.[test,browser]'
	@touch $@

$(RELEASE_VENV)/.installed: $(RELEASE_VENV)/bin/python pyproject.toml constraints.txt
	$(RELEASE_BIN)/python $(INSTALL) build twine uv pytest pytest-timeout
	@touch $@

$(SITE_VENV)/.installed: $(SITE_VENV)/bin/python pyproject.toml constraints.txt
	$(SITE_BIN)/python $(INSTALL) --editable '.[site]'
	@touch $@

clean:
	rm -rf $(VENV) $(VMAS_VENV) $(EXTRAS_VENV) $(TORCH_VENV) $(SITE_VENV) $(RELEASE_VENV) $(WEB_VENV) .jax_cache .mypy_cache .pytest_cache .ruff_cache .hypothesis build *.egg-info
