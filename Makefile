# Every routine step of the project. `make train` and `make test` start from a bare machine with
# Python 3.11, g++ and make; what is up to date is not done again.

PYTHON ?= python3.11
ifeq (, $(shell command -v $(PYTHON) 2>/dev/null))
  PYTHON := python3
endif
VENV := .venv
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell nproc)

# Training needs a third of what testing and linting do.
TRAINING := $(VENV)/.installed-for-training
ENVIRONMENT := $(VENV)/.installed
PACKAGE := build/release/.installed
BUILD_FILES := CMakeLists.txt pyproject.toml $(wildcard cmake/*)
CPP_SOURCES := $(shell find src -name '*.cpp' -o -name '*.h')
PACKAGE_SOURCES := $(CPP_SOURCES) $(shell find python -name '*.py' -o -name '*.pyi') $(BUILD_FILES)
FORMATTED := $(shell find src tests examples tools -name '*.cpp' -o -name '*.h')
# Files are handed out whole: the counts that tests assert may depend on what their file ran before.
PYTEST_FLAGS ?= --numprocesses auto --maxprocesses 4 --dist loadfile

.PHONY: train test test-cpp test-release test-asan test-tsan test-plugin test-python test-torch \
        test-sdist wheel bench lint format tidy size docs site links conformance endurance fuzz relock \
        setup install clean

train: install
	python examples/mnist.py $(ARGS)

test: test-cpp test-python

setup: $(ENVIRONMENT)
install: $(PACKAGE)

PIP_INSTALL := bin/python -m pip install --quiet --disable-pip-version-check
INSTALL := $(VENV)/$(PIP_INSTALL)

$(TRAINING): requirements/train.txt requirements/lock.txt
	$(VENV)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	$(INSTALL) -r requirements/train.txt -c requirements/lock.txt
	touch $@

$(ENVIRONMENT): requirements/dev.txt $(TRAINING)
	$(INSTALL) -r requirements/dev.txt -c requirements/lock.txt
	touch $@

# Newer compilers warn of more, which is not to end a stranger's build.
WERROR := $(if $(filter 12%,$(shell $(CXX) -dumpversion 2>/dev/null)),ON,OFF)
# As old as the build's beginning: what is edited meanwhile is for the next one.
$(PACKAGE): $(TRAINING) $(PACKAGE_SOURCES)
	mkdir -p $(@D) && touch $@.begun
	$(INSTALL) --no-build-isolation --no-deps \
	  --config-settings=cmake.define.TORCH_XLA_WERROR=$(WERROR) .
	mv $@.begun $@

# Under sanitizers; what the package was built from is tried by test-python, and by test-release,
# whose tests link it.
test-cpp: test-asan test-tsan

test-release: $(ENVIRONMENT) install
	cmake --build build/release --target cpp_tests
	ctest --test-dir build/release --output-on-failure

test-asan test-tsan: test-%: $(ENVIRONMENT)
	test -f build/$*/build.ninja || cmake --preset $* -DTORCH_XLA_WERROR=$(WERROR)
	cmake --build --preset $*
	ctest --preset $*

# What src/pjrt needs of a plugin, of the one that PJRT_LIBRARY_PATH names.
test-plugin: $(ENVIRONMENT) install
	cmake --build build/release --target pjrt_test
	build/release/pjrt_test '[PJRT_LIBRARY_PATH]'

test-python: $(ENVIRONMENT) install
	cmake --build build/release --target fake_plugin
	pytest $(PYTEST_FLAGS)

# With other versions of torch, each in an environment and a build folder of its own:
# make test-torch VERSION=2.15.0 PYTEST_FLAGS="tests/views". docs/dev/new_torch.md tells what to look at.
# How well XLA compiles does not depend on torch: it compiles quickly here, but for what that fails.
build/torch-%/.installed: requirements/train.txt requirements/lock.txt
	mkdir -p $(@D)
	test -x $(@D)/venv/bin/python || $(PYTHON) -m venv $(@D)/venv
	sed '/^torch==/d' requirements/lock.txt > $(@D)/lock.txt
	sed '/^torch==/d' requirements/train.txt > $(@D)/train.txt
	sed '/^-r/d; /^# lint/,$$d' requirements/dev.txt > $(@D)/test.txt
	$(@D)/venv/$(PIP_INSTALL) torch==$*
	$(@D)/venv/$(PIP_INSTALL) torch==$* -r $(@D)/train.txt -c $(@D)/lock.txt
	touch $@

build/torch-%/wheel/.built: build/torch-%/.installed $(PACKAGE_SOURCES)
	rm -rf $(@D)
	PATH=$(CURDIR)/build/torch-$*/venv/bin:$$PATH python -m pip wheel --quiet --no-build-isolation --no-deps \
	  --config-settings=build-dir=build/torch-$*/release --wheel-dir $(@D) .
	touch $@

.SECONDARY:

OTHER := build/torch-$(VERSION)
test-torch: $(if $(VERSION),$(OTHER)/wheel/.built)
	test -n "$(VERSION)" || { echo "test-torch: which one? VERSION=2.15.0" >&2; exit 1; }
	$(OTHER)/venv/$(PIP_INSTALL) torch==$(VERSION) -r $(OTHER)/test.txt -c $(OTHER)/lock.txt
	$(OTHER)/venv/$(PIP_INSTALL) --no-deps --force-reinstall $(OTHER)/wheel/*.whl
	cmake --build $(OTHER)/release --target fake_plugin
	PATH=$(CURDIR)/$(OTHER)/venv/bin:$$PATH; set -e; \
	XLA_FLAGS="$$(python tests/support/quick_options.py)" \
	  pytest -m "not optimized" $(PYTEST_FLAGS) || test $$? = 5; \
	pytest -m optimized $(PYTEST_FLAGS) || test $$? = 5

# One wheel with the libraries for several versions of torch, for this Python and this system's C
# library, in dist; docs/dev/releasing.md.
TORCHES ?= 2.11.0 2.12.1 2.13.0 2.14.1 2.15.0
wheel: $(ENVIRONMENT) $(TORCHES:%=build/torch-%/wheel/.built)
	rm -rf build/wheel
	python tools/merge_wheels.py --out build/wheel $(TORCHES:%=build/torch-%/wheel/*.whl)
	auditwheel repair --wheel-dir dist $(foreach name,torch torch_cpu torch_python c10,--exclude lib$(name).so) \
	  build/wheel/*.whl

# The source distribution, installed from as strangers do, in an environment that has PyTorch alone:
# with the build isolated by pip, which must not fetch another PyTorch, and without.
test-sdist: $(ENVIRONMENT)
	rm -rf build/sdist
	python -m build --sdist --no-isolation --outdir build/sdist .
	tar --extract --directory build/sdist --file build/sdist/*.tar.gz
	set -e; cd build/sdist/*/; \
	for way in "" "--no-build-isolation"; do \
	  rm -rf .venv build; $(PYTHON) -m venv .venv; \
	  .venv/$(PIP_INSTALL) $$(sed -n '/^torch==/p' requirements/train.txt); \
	  test -z "$$way" || .venv/$(PIP_INSTALL) scikit-build-core cmake ninja; \
	  PATH=$$PWD/.venv/bin:$$PATH python -m pip install --quiet $$way .; \
	  ! .venv/bin/python -m pip list | grep -i nvidia; \
	  (cd .venv && bin/python -m torch_xla.doctor); \
	done

# The script's own folder comes first in sys.path, so that the installed package is measured.
BENCHMARKS ?= record train overlap startup warm_cache openxla
bench: $(ENVIRONMENT) install
	for name in $(BENCHMARKS); do python benchmarks/$$name.py $(ARGS) || exit 1; done

lint: $(ENVIRONMENT)
	clang-format --dry-run --Werror $(FORMATTED)
	ruff check .
	ruff format --check .
	mypy
	codespell
	python tools/check_layers.py

format: $(ENVIRONMENT)
	clang-format -i $(FORMATTED)
	ruff check --fix .
	ruff format .

# The folders without torch; a stamp per source, so run it with -j.
TIDY := $(patsubst src/%.cpp,build/tidy/%.ok,$(filter-out src/aten/% src/python/%,\
          $(filter %.cpp,$(CPP_SOURCES))))
tidy: $(TIDY)

build/asan/build.ninja: $(ENVIRONMENT)
	test -f $@ || cmake --preset asan

build/tidy/%.ok: src/%.cpp $(filter %.h,$(CPP_SOURCES)) .clang-tidy | build/asan/build.ninja
	clang-tidy -p build/asan --quiet $<
	@mkdir -p $(@D) && touch $@

size:
	python3 tools/size_report.py

docs: $(ENVIRONMENT) install
	cmake --build build/release --target settings_page
	build/release/settings_page > docs/settings.md
	python tools/op_coverage.py > docs/op_coverage.md.new
	mv docs/op_coverage.md.new docs/op_coverage.md
	python tools/names_pages.py

# The documentation as a site in build/site, looked at with Chromium where there is one; a warning is
# an error.
site: $(ENVIRONMENT) install
	python -P -m sphinx -b html -W --keep-going --jobs auto --quiet docs build/site
	python tools/look_at_site.py build/site

# Whether what the site links to elsewhere is there.
links: $(ENVIRONMENT) install
	python -P -m sphinx -b linkcheck --jobs auto --quiet docs build/links

# With PLUGIN=/path/to/plugin.so what that plugin supports: the library alone, programs, operators.
# Without, the outcomes that docs/op_coverage.md tells; an hour.
SAMPLES ?= 4
ifdef PLUGIN
conformance: export PJRT_LIBRARY_PATH := $(abspath $(PLUGIN))
conformance: $(ENVIRONMENT) install
	cmake --build build/release --target pjrt_test
	failed=; \
	build/release/pjrt_test '[PJRT_LIBRARY_PATH]' || failed="$$failed library"; \
	python -m torch_xla.conformance || failed="$$failed programs"; \
	python tools/conformance --no-list --samples $(SAMPLES) || failed="$$failed operators"; \
	test -z "$$failed" || { echo "failed:$$failed"; exit 1; }
else
conformance: $(ENVIRONMENT) install
	python tools/conformance --out tools/conformance/float32.txt
	python tools/conformance --split --samples 1
	python tools/conformance --dynamic --samples 1
	GENERATION=all python -m pytest tests/clients/test_generation.py \
	  tests/clients/test_compile_counts_of_programs.py
	SPMD_DEVICES=2,4,8 python -m pytest tests/spmd/test_models.py
	EXCHANGES=all python -m pytest tests/replicas/test_exchanges.py tests/replicas/test_spanning_plugin.py
	$(MAKE) docs
endif

# Random programs by the thousand, from seeds that no test has; prints minimal programs of what
# differs. One kind: make fuzz FUZZ=value_programs FUZZ_COUNT=20000.
FUZZ ?= view_programs memory_programs value_programs op_programs autograd_programs sharded_programs \
  size_programs update_programs
FUZZ_FIRST ?= 100000
FUZZ_COUNT ?= 5000
fuzz: $(ENVIRONMENT) install
	failed=; XLA_FLAGS="$$(python tests/support/quick_options.py)"; export XLA_FLAGS; \
	for name in $(FUZZ); do \
	  XLA_PERSISTENT_CACHE=0 \
	  python tests/programs/$$name.py --first $(FUZZ_FIRST) --count $(FUZZ_COUNT) || failed="$$failed $$name"; \
	done; test -z "$$failed"

# Whether replicas hold more and more, and meet where they are many on few cores; 10 minutes.
STEPS ?= 20000
endurance: $(ENVIRONMENT) install
	CPU_NUM_DEVICES=4 python tests/replicas/long_training.py --steps $(STEPS)
	CPU_NUM_DEVICES=8 python tests/replicas/thread_programs.py exchanges failures ends
	CPU_NUM_DEVICES=8 python tests/replicas/exchange_programs.py messages groups uneven reads

# Renews the pins of what train.txt and dev.txt pull in.
relock:
	rm -rf build/relock
	$(PYTHON) -m venv build/relock
	build/relock/bin/pip install --quiet -r requirements/dev.txt
	python3 tools/relock.py build/relock/bin/pip > requirements/lock.txt.new
	mv requirements/lock.txt.new requirements/lock.txt

clean:
	rm -rf build
