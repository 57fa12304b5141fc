# The front door; CMakePresets.json and tools/ do the work. `make help` lists what there is.
PRESET = release
BUILD = build/$(PRESET)
PREFIX = /usr/local
SOURCES = git ls-files --cached --others --exclude-standard '*.c' '*.h' '*.cu' '*.cuh' '*_body.inc' '*_products_*.inc' '*_results.inc'

.PHONY: all build run test bench fmt check install clean help

all: build

build:
	@tools/setup.sh run
	@[ -e $(BUILD)/build.ninja ] || cmake --preset $(PRESET) -DMMLA_TESTS=OFF $(CMAKE_ARGS) >/dev/null
	@cmake --build $(BUILD) --target megamla megamla_shared megamla_static

run: build
	@$(BUILD)/megamla run examples/mixed_batch.safetensors --compare reference

test:
	@tools/setup.sh test
	@cmake --preset $(PRESET) -DMMLA_TESTS=ON $(CMAKE_ARGS) >/dev/null
	@cmake --build $(BUILD)
	@tools/run_tests.sh $(BUILD) $(CTEST_ARGS)

bench: build
	@$(BUILD)/megamla bench

fmt:
	@tools/setup.sh fmt
	@$(SOURCES) | xargs clang-format -i

check:
	@tools/setup.sh fmt test
	@$(SOURCES) | xargs clang-format --dry-run --Werror
	@python3 tools/check_layers.py

install: build
	@DESTDIR=$(DESTDIR) cmake --install $(BUILD) --prefix $(PREFIX)
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" -ne 0 ] || ldconfig

clean:
	@rm -rf build

help:
	@echo 'make            build the library and the command into build/release'
	@echo 'make run        build, then replay the sample batch and compare it with the reference'
	@echo 'make test       build, then run every test; PRESET=asan, tsan, dev, clang, cuda: that build'
	@echo 'make bench      build, then measure this machine'
	@echo 'make fmt        format the sources'
	@echo 'make check      check the format and the include rules'
	@echo 'make install    install; PREFIX=/usr/local DESTDIR='
	@echo 'make clean      remove build/'
	@echo 'What is missing on a Debian machine is installed first (as root), or named.'
