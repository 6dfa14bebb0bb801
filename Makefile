# Thin names for the CMake presets and what surrounds them. First use of a target installs what it needs; see
# scripts/bootstrap for the settings: Torch_DIR, CMAKE_PREFIX_PATH, RETINUE_TORCH_WHEEL, RETINUE_DATA.
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
# ci: the same build with warnings as errors.
PRESET ?= release
ifeq ($(filter release ci,$(PRESET)),)
  $(error PRESET is '$(PRESET)'; it must be release or ci)
endif
BUILD = cmake --build --preset $(1) --parallel $(JOBS)
# Tests wait for almost half of their time.
CTEST = ctest --parallel $$((($(JOBS) * 3 + 1) / 2))
# ThreadSanitizer of gcc 12 and 13 can't place its shadow where the kernel randomises addresses by more than 28 bits.
FIXED_ADDRESSES = $(shell setarch -R true 2>/dev/null && echo setarch -R)

.NOTPARALLEL:
.PHONY: demo build test-tools test test-full test-torch examples platforms wheel deb release-check chaos bench performance peers lint docs asan tsan fuzz install

demo:
	@scripts/bootstrap build torch data
	@cmake --preset $(PRESET) -DRETINUE_TORCH=ON --log-level=WARNING
	@$(call BUILD,release) --target train_fashion_mnist
	build/release/bin/train_fashion_mnist --nprocs 2

build:
	@scripts/bootstrap build torch mpi python
	@cmake --preset $(PRESET) -DRETINUE_TORCH=ON --log-level=WARNING
	@$(call BUILD,release)

# Before the build, which looks for them.
test-tools:
	@scripts/bootstrap data browser tensorboard valgrind coverage locale numpy mypy py-spy

test: test-tools build
	$(CTEST) --preset release

test-full: test-tools build
	@scripts/bootstrap suites
	@$(call BUILD,release) --target tests_full
	$(CTEST) --preset full

# The tests of the torch layer with another LibTorch, as VERSION=2.15.0; without CUDA.
test-torch:
	@test -n '$(VERSION)' || { echo 'name a version of LibTorch, as: make test-torch VERSION=2.15.0' >&2; exit 2; }
	@scripts/bootstrap build data torch-$(VERSION)
	@cmake --preset release -B build/torch-$(VERSION) -DRETINUE_TORCH=ON -DRETINUE_CUDA=OFF -DRETINUE_BUILD_BENCH=OFF \
	  -DRETINUE_BUILD_EXAMPLES=OFF -DTorch_DIR="$$(echo "$(CURDIR)"/.retinue/venv-torch-$(VERSION)/lib/python3*/site-packages/torch)" \
	  --log-level=STATUS
	@cmake --build build/torch-$(VERSION) --parallel $(JOBS) --target tests_torch
	$(CTEST) --test-dir build/torch-$(VERSION) -L '^quick$$' -R '^torch\.' --output-on-failure --no-tests=error

# The trainings on real data, from beginning to end.
examples:
	@scripts/bootstrap build torch data
	@cmake --preset $(PRESET) -DRETINUE_TORCH=ON --log-level=WARNING
	@$(call BUILD,release) --target retinue_examples
	build/release/bin/train_fashion_mnist
	build/release/bin/train_resnet
	build/release/bin/train_resnet --share-parameters
	build/release/bin/character_model
	build/release/bin/hogwild --sync 20

# dist/retinue-*.whl, for each LibTorch. It downloads those that are missing: 540 MB each.
wheel:
	scripts/wheel

# dist/*.deb: the command, and the core for programs.
deb:
	scripts/deb

# The core with the compilers of other systems.
platforms:
	scripts/platforms

# Whether this commit can be released: version, changelog, documentation, wheel, Debian packages.
release-check:
	scripts/release_check

# Random signals to random processes of random jobs; the seed that a failure prints repeats it, as far as times do.
chaos: build
	CHAOS_SEED=$(SEED) CHAOS_SECONDS=$(or $(SECONDS),3600) build/release/bin/tests_fault_joined --gtest_filter='Chaos.*'

bench: peers build
	scripts/bench

# Goes on where it was interrupted; without build/sweep it begins anew.
performance: peers build
	bench/sweep
	bench/plot
	scripts/check_performance --fix

peers:
	@scripts/bootstrap torch peers
	bench/peers/install

lint:
	@scripts/bootstrap build python lint torch mpi
	@cmake --preset $(PRESET) -DRETINUE_TORCH=ON --log-level=WARNING
	$(CTEST) --preset lint

# The documentation as a site, in build/docs; a broken link or a comment that Doxygen can't read is an error.
docs:
	@scripts/bootstrap docs
	NO_MKDOCS_2_WARNING=1 .retinue/venv-docs/bin/mkdocs build

asan tsan:
	@scripts/bootstrap build
	@cmake --preset $@ --log-level=WARNING
	@$(call BUILD,$@)
	$(if $(filter tsan,$@),$(FIXED_ADDRESSES)) $(CTEST) --preset $@

# RETINUE_FUZZ_SECONDS for each target, 30 where it is not set.
fuzz:
	@scripts/bootstrap build fuzz
	@cmake --preset fuzz --log-level=WARNING
	@$(call BUILD,fuzz) --target fuzz
	scripts/fuzz

install:
	@scripts/bootstrap build torch
	@cmake --preset $(PRESET) -DRETINUE_TORCH=ON --log-level=WARNING
	@$(call BUILD,release) --target retinue_installed
	cmake --install build/release --prefix "$(PREFIX)"
