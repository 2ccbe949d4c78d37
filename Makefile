# From a bare machine to a built, shown, tested and installed library. `make` alone lists what there is.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PREFIX ?= /usr/local

# make's own default for CXX is no choice of the user's: without one, tools/setup looks for a compiler.
ifeq ($(origin CXX),default)
unexport CXX
else
export CXX
endif
export BUILD_TYPE JOBS

help:
	@echo 'make demo       set up, build, and run two real models through their norms, checked and timed'
	@echo 'make test       set up, build, and run every test; test-release, test-data, test-package,'
	@echo '                test-python, test-clang, test-asan, test-fuzz, test-tsan and test-neon are its parts'
	@echo 'make test-convergence   train models with and without truenorm in PyTorch, and write docs/convergence.md'
	@echo 'make build      the library and the truenorm command, in build/'
	@echo 'make bench      time each operation beside a copy of the same bytes'
	@echo 'make checkstyle clang-format, clang-tidy, ruff; make format lets clang-format rewrite'
	@echo 'make install    into PREFIX (now $(PREFIX)): headers, library, CMake and pkg-config files, command'
	@echo 'make clean      remove what was built; make distclean also .venv/, .venv-torch/ and .data/'
	@echo 'Variables: CXX, BUILD_TYPE (Release), JOBS (all cores), PREFIX, DESTDIR'

build:
	@tools/setup build
	@tools/build

demo:
	@tools/setup build python
	@tools/build
	@.venv/bin/python tools/fetch_models.py
	@.venv/bin/python tools/demo

bench: build
	@build/bin/truenorm bench

test:
	@tools/setup build tests python torch-packages clang fuzz neon
	@tools/test

test-release: ; @tools/setup build tests && tools/test release
test-data: ; @tools/setup build tests python && tools/test data
test-package: ; @tools/setup build tests && tools/test package
test-python: ; @tools/setup build tests torch-packages && tools/test python
test-clang: ; @tools/setup build tests clang && tools/test clang
test-asan: ; @tools/setup build tests clang fuzz && tools/test asan
test-fuzz: ; @tools/setup build tests clang fuzz && tools/test fuzz
test-tsan: ; @tools/setup build tests && tools/test tsan
test-neon: ; @tools/setup build neon && tools/test neon

# Half an hour on two cores and more, so no part of `make test`.
test-convergence: ; @tools/setup build torch && tools/test convergence

checkstyle:
	@tools/setup build style
	@tools/checkstyle

format:
	@tools/setup style
	@tools/checkstyle format

install: build
	@cmake --install build --prefix '$(PREFIX)' >build/log/install.log && echo 'installed into $(DESTDIR)$(PREFIX)'

clean:
	rm -rf build build-*

distclean: clean
	rm -rf .venv .venv-torch .data

.PHONY: help build demo bench test test-release test-data test-package test-clang test-asan test-fuzz test-tsan
.PHONY: test-python test-neon test-convergence checkstyle format install clean distclean
