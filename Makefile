# Thin names for the CMake presets and what surrounds them. First use of a target installs what it needs; see
# scripts/bootstrap for the settings: Torch_DIR, CMAKE_PREFIX_PATH, RETINUE_TORCH_WHEEL, RETINUE_DATA.
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
BUILD = cmake --build --preset $(1) --parallel $(JOBS)
CTEST = ctest --parallel $(JOBS)
# ThreadSanitizer of gcc 12 and 13 can't place its shadow where the kernel randomises addresses by more than 28 bits.
FIXED_ADDRESSES = $(shell setarch -R true 2>/dev/null && echo setarch -R)

.NOTPARALLEL:
.PHONY: demo build test-tools test test-full chaos bench performance peers lint docs asan tsan fuzz install

demo:
	@scripts/bootstrap build torch data
	@cmake --preset release -DRETINUE_TORCH=ON --log-level=WARNING
	@$(call BUILD,release) --target train_fashion_mnist
	build/release/bin/train_fashion_mnist --nprocs 2

build:
	@scripts/bootstrap build torch mpi
	@cmake --preset release -DRETINUE_TORCH=ON --log-level=WARNING
	@$(call BUILD,release)

# Before the build, which looks for them.
test-tools:
	@scripts/bootstrap data browser valgrind coverage locale

test: test-tools build
	$(CTEST) --preset release

test-full: test-tools build
	$(CTEST) --preset full

# Random signals to random processes of random jobs; the seed that a failure prints repeats it, as far as times do.
chaos: build
	CHAOS_SEED=$(SEED) CHAOS_SECONDS=$(or $(SECONDS),3600) build/release/bin/tests_fault_chaos

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
	@scripts/bootstrap build lint torch mpi
	@cmake --preset release -DRETINUE_TORCH=ON --log-level=WARNING
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

install: build
	cmake --install build/release --prefix $(PREFIX)
