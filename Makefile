# Everything runs in a virtual environment of its own, .venv; only Python 3.10+, a C++20 compiler and make must be there.
#
#   make run        sets up, and the bundled model answers a question
#   make test       sets up and runs the tests
#   make test-live  adds the comparisons with transformers and tokenizers (PyTorch: a large download)
#   make test-harness  evaluates a server with lm-evaluation-harness (a large download)
#   make test-browser  drives the chat page of hy3 serve; installs Debian's chromium where it is missing
#   make test-peer  compares with llama.cpp (builds llama-cpp-python, some minutes)
#   make sanitize   the native tests and the fuzz test with AddressSanitizer and UndefinedBehaviorSanitizer, and the
#                   thread pool's tests with ThreadSanitizer
#   make test-native  the native tests as the package is compiled
#   make test-arm64   the same for 64-bit Arm, emulated; installs Debian's cross compiler and qemu where they are missing
#   make lint       ruff, mypy, clang-format
#   make docs       docs/cli.md from the help pages

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CTEST := $(BIN)/ctest --verbose --parallel 2 --test-dir
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# What the installed package is made of.
SOURCES := pyproject.toml CMakeLists.txt README.md LICENSE $(shell find src native -type f -not -path '*/__pycache__/*')

.PHONY: run test test-live test-harness test-browser test-peer sanitize test-native test-arm64 lint docs clean

run: $(VENV)/installed
	$(BIN)/hy3 run -p "11+22+33=?"

test: $(VENV)/installed $(VENV)/installed-test
	$(BIN)/python -m pytest

test-live: $(VENV)/installed $(VENV)/installed-test $(VENV)/installed-live
	$(BIN)/python -m pytest -m live

test-harness: $(VENV)/installed $(VENV)/installed-test $(VENV)/installed-harness
	$(BIN)/python -m pytest -m harness

test-browser: $(VENV)/installed $(VENV)/installed-test $(VENV)/installed-browser
	tools/install_tools.sh $@ chromium=chromium
	$(BIN)/python -m pytest -m browser tests/serve

test-peer: $(VENV)/installed $(VENV)/installed-test $(VENV)/installed-live $(VENV)/installed-peer
	$(BIN)/python -m pytest -m peer

sanitize: $(VENV)/installed $(VENV)/installed-native
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cmake -S . -B build/sanitize -G Ninja -DCMAKE_BUILD_TYPE=Debug \
	    -DCMAKE_CXX_FLAGS_DEBUG=-O1 -DHY3_PYTHON=OFF -DHY3_BUILD_TESTS=ON -DHY3_SANITIZE=address,undefined -DHY3_WERROR=ON
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cmake --build build/sanitize
	$(CTEST) build/sanitize
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cmake -S . -B build/sanitize-threads -G Ninja -DCMAKE_BUILD_TYPE=Debug \
	    -DCMAKE_CXX_FLAGS_DEBUG=-O1 -DHY3_PYTHON=OFF -DHY3_BUILD_TESTS=ON -DHY3_SANITIZE=thread -DHY3_WERROR=ON
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cmake --build build/sanitize-threads --target hy3_thread_tests
	$(CTEST) build/sanitize-threads -R threads

NATIVE_TESTS := -G Ninja -DHY3_PYTHON=OFF -DHY3_BUILD_TESTS=ON -DHY3_WERROR=ON

test-native: $(VENV)/installed-native
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cmake -S . -B build/native $(NATIVE_TESTS)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cmake --build build/native
	$(CTEST) build/native -E fuzz

test-arm64: $(VENV)/installed-native
	tools/install_tools.sh $@ aarch64-linux-gnu-g++=g++-aarch64-linux-gnu qemu-aarch64=qemu-user
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cmake -S . -B build/arm64 $(NATIVE_TESTS) \
	    -DCMAKE_TOOLCHAIN_FILE=cmake/arm64-linux.cmake
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cmake --build build/arm64
	$(CTEST) build/arm64

lint: $(VENV)/installed $(VENV)/installed-lint $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	git ls-files -z '*.cpp' '*.h' | xargs -0 $(BIN)/clang-format --dry-run --Werror

docs: $(VENV)/installed
	$(BIN)/python tools/gen_cli_docs.py

clean:
	rm -rf $(VENV) build

# Dependency groups need pip 25.1.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade "pip>=25.1"

$(VENV)/installed: $(VENV)/bin/python $(SOURCES)
	$(PIP) .
	@touch $@

# llama.cpp without AMX: virtual machines announce it and then kill the program that uses it.
ifeq ($(shell uname -m),x86_64)
NO_AMX := -mno-amx-tile -mno-amx-int8 -mno-amx-bf16
$(VENV)/installed-peer: export CMAKE_ARGS := -DCMAKE_C_FLAGS='$(NO_AMX)' -DCMAKE_CXX_FLAGS='$(NO_AMX)' $(CMAKE_ARGS)
endif

$(VENV)/installed-%: pyproject.toml $(VENV)/bin/python
	$(PIP) --group $*
	@touch $@
