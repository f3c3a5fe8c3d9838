# Every target that needs Python creates and uses .venv in this checkout; nothing else has to be installed beforehand
# than Python 3.11 or later with venv, make and git.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO := $(VENV)/.demo
PEERS := .venv-peers
PLUGINS := .venv-plugins
OLD := .venv-oldest
OTHERS := .venv-pythons
PYTHONS ?= $(foreach version,3.11 3.12 3.13,$(firstword $(wildcard $(HOME)/.pyenv/versions/$(version).*/bin/python) $(shell command -v python$(version))))
BRICKS := tests/system/test_contract.py tests/system/test_replay.py tests/unit/test_buffer.py tests/unit/test_race.py
OLDEST ?= $(shell /usr/bin/python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo /usr/bin/python3 || echo $(PYTHON))
HOSTED := hosts rllib
hosts_LIBRARIES := sb3 tianshou torchrl
rllib_LIBRARIES := rllib
COMPARED := benchmarks compare 3c43102 HEAD --contestants numba --capacities 1000000 --batches 1024 --fanouts 16 --budget 240
RACED := dse recommend --capacity 1e6 --batch 256 --again
PRINTED ?= race run compare
TRAINED := dse run cartpole_dqn --platform this --decide 30 --seconds 30 --again

# Where else modules are, where else packages go and which other repository a hook is of, is not for what is made here.
unexport PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT PIP_NO_DEPS
unexport GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_COMMON_DIR GIT_PREFIX

# What is installed names the folder it was made in: in a copied or moved checkout it is made anew.
$(shell for made in $(VENV) $(OLD) $(PLUGINS)/*; do \
  was="$$(cat "$$made"/.made 2>/dev/null)"; \
  [ -z "$$was" ] || [ "$$was" = "$$(cd "$$made" && pwd -P)" ] || rm -f "$$made"/.ready "$$made"/.demo; done)

.PHONY: help demo peers plugins gpu gallery printed test test-all pythons oldest mutants bench check format clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

demo: $(DEMO)  ## measure trees and a training system here, race trees and training runs; 6 minutes
	$(BIN)/python -m benchmarks sweep --preset brief --anyway
	$(BIN)/python -m benchmarks profile --workload cartpole_dqn --preset brief --anyway
	$(BIN)/python -m benchmarks profile --workload cartpole_dqn --preset brief --arrangements --anyway
	@echo
	$(BIN)/python -m dse recommend --capacity 1000000 --batch 256
	@echo
	$(BIN)/python -m dse recommend --platform this --workload cartpole_dqn
	@echo
	$(BIN)/python -m dse run cartpole_dqn --platform this --decide 30 --seconds 30
	@echo
	$(BIN)/python -m reports >/dev/null
	@echo "the figures of what was measured: reports/build/index.html"

peers: $(READY) $(PEERS)/.ready  ## time other libraries beside ours, in an environment of their own; 12 minutes
	$(BIN)/python -m benchmarks peers --python $(PEERS)/bin/python

plugins: $(HOSTED:%=$(PLUGINS)/%/.ready)  ## test our trees inside other libraries, in environments of their own; 20 minutes
	@for name in $(HOSTED); do \
	  echo "$$name: the plug-ins' tests"; \
	  OMP_NUM_THREADS=1 $(PLUGINS)/$$name/bin/python -m pytest tests/system/test_plugin_*.py -q --strict-skips || exit 1; \
	done
	@echo "to time them: $(BIN)/python -m benchmarks run plugins"

gpu: export PYTHONPATH := $(PYTHONPATH)
gpu:  ## where there is a CUDA device: check, time and plot the GPU tree; PYTHON=... has CuPy, nothing is installed
	@$(PYTHON) -c 'import numpy' || { echo "error: $(PYTHON) has no NumPy; name one that has it and CuPy: make gpu PYTHON=..." >&2; exit 2; }
	$(PYTHON) -m benchmarks run gpu
	@$(PYTHON) -c 'import pandas, seaborn' 2>/dev/null && $(PYTHON) -m reports || \
	  echo "records are in results/; $(PYTHON) has no pandas and seaborn to draw them with: python -m reports elsewhere"

gallery: $(READY)  ## build the page that is kept in the repository again, from one machine's committed records
	$(BIN)/python -m reports --machine 8fb834d50a --out reports/build/gallery
	cp reports/build/gallery/index.html reports/gallery/

printed: $(READY)  ## record what the README shows of a race, a run and a comparison here, in quiet; 10 minutes
	for each in $(PRINTED); do \
	  case $$each in compare) command='$(COMPARED)';; run) command='$(TRAINED)';; race) command='$(RACED)';; esac; \
	  { echo '```console'; echo "$$ python -m $$command"; $(BIN)/python -m $$command || exit $$?; \
	    printf '```\n\n*Recorded %s at `%s` on machine `%s`, which was otherwise idle.*\n' "$$(date -u +%F)" \
	      "$$(git rev-parse --short HEAD)" "$$($(BIN)/python -c 'from dse.platforms import fingerprint; print(fingerprint()["key"])')"; \
	  } > results/$$each.md.part && mv results/$$each.md.part results/$$each.md || exit $$?; done
	@echo "commit results/*.md, then write the README anew: $(BIN)/python -m reports.readmes"

test: $(READY)  ## the tests of single parts and of whole systems, in minutes
	$(BIN)/python -m tests.run $(TESTED)

test-all: $(READY) pythons  ## the page, the oracles, the long tests and other Pythons as well; keeps what each file took
	$(BIN)/python -m tests.run --all

pythons: $(READY)  ## imports, trees, replay and a few commands by each Python that is installed, or by PYTHONS; without torch; 10 minutes
	for python in $(PYTHONS); do \
	  made=$(OTHERS)/$$($$python -c 'import platform; print(platform.python_version())') && echo $$made && \
	  $(BIN)/python -m virtualenv --quiet --clear --python $$python $$made && \
	  PIP_CONSTRAINT=constraints.txt $$made/bin/python -m pip install --quiet --disable-pip-version-check \
	    -e '.[numba]' hypothesis pytest pytest-benchmark && $$made/bin/python -m tests.oldest --few && \
	  $$made/bin/python -m pytest $(BRICKS) -k "not tensors" -m "not slow and not timing" --strict-skips -q || exit 1; \
	done

oldest: $(OLD)/.ready  ## every command in small, by an old Python (OLDEST=...) and the packages of `make demo`; 5 minutes
	$(OLD)/bin/python -m tests.oldest

mutants: $(READY)  ## put faults into copies of the code and see that the tests catch each; under an hour
	$(BIN)/python -m tests.mutation

bench: $(READY)  ## time samples and updates with pytest-benchmark, in seconds
	$(BIN)/python -m pytest tests/system/test_asv.py --benchmark-enable --benchmark-only

check: $(READY)  ## format, lint, strict types
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy

format: $(READY)  ## bring the code into the house's format
	$(BIN)/python -m ruff format .
	$(BIN)/python -m ruff check --fix .

clean:  ## remove the environment and every cache
	rm -rf $(VENV) $(OLD) $(OTHERS) $(PEERS) $(PLUGINS) .compare .asv .benchmarks .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# .ready has all that .demo has. What pip warns of is shown where it fails.
$(READY): EXTRA := dev
$(DEMO): EXTRA := demo
$(READY) $(DEMO): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Fanout needs Python 3.11 or later; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --disable-pip-version-check -e '.[$(EXTRA)]' \
	  2>$(VENV)/pip.log || { cat $(VENV)/pip.log >&2; exit 1; }
	@cd $(VENV) && pwd -P >.made
	@touch $(DEMO) $@

$(OLD)/.ready: pyproject.toml constraints.txt | $(READY)
	$(BIN)/python -m virtualenv --quiet --clear --python $(OLDEST) $(OLD)
	PIP_CONSTRAINT=constraints.txt $(OLD)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[demo]'
	@cd $(OLD) && pwd -P >.made
	@touch $@

$(PEERS)/.ready: benchmarks/libraries/constraints.txt benchmarks/install.py
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -c $< numpy numba
	$(PEERS)/bin/python -m benchmarks.install
	@touch $@

$(PLUGINS)/%/.ready: benchmarks/libraries/constraints.txt benchmarks/install.py
	$(PYTHON) -m venv $(PLUGINS)/$*
	$(PLUGINS)/$*/bin/python -m pip install --quiet --disable-pip-version-check -c $< numpy
	$(PLUGINS)/$*/bin/python -m benchmarks.install --hosts $($*_LIBRARIES)
	@cd $(PLUGINS)/$* && pwd -P >.made
	@touch $@
