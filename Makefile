# Everything is found by wildcard: a new source, test or program needs no edit here.
#   VARIANT  debug (default, -O2 -g), asan, tsan, fuzz, coverage
#   CC       gcc (default) or clang
VARIANT ?= debug
ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(VARIANT),fuzz)
CC := clang
endif
BUILD := build/$(VARIANT)$(if $(findstring clang,$(CC)),$(if $(filter fuzz,$(VARIANT)),,-clang))
MNT ?= $(HOME)/pai
PREFIX ?= /usr/local
VERSION := $(shell sed -n 's/.define PAI_VERSION "\(.*\)"/\1/p' providers/base/version.h)

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wwrite-strings \
	-Wpointer-arith -Wformat=2 -Wimplicit-fallthrough -Werror
# Zero for the rest is what a partial initializer is for; gcc and clang disagree on when to warn.
WARN += -Wno-missing-field-initializers
CPPFLAGS += -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -I.
CFLAGS ?= -O2 -g
ALL_CFLAGS = -std=gnu17 $(WARN) $(CFLAGS) -fno-common -fstack-protector-strong -fPIE -pthread \
	-ffile-prefix-map=$(CURDIR)=. -MMD -MP $(VARIANT_FLAGS)
ALL_LDFLAGS = -pie -pthread -Wl,-z,relro,-z,now -Wl,--as-needed $(VARIANT_FLAGS) $(LDFLAGS)

VARIANT_FLAGS.debug := -D_FORTIFY_SOURCE=2
# gcc knows less about values once it has instrumented them, and warns of what cannot be.
BLURRED := -O1 -fno-omit-frame-pointer -Wno-format-truncation -Wno-maybe-uninitialized
VARIANT_FLAGS.asan := $(BLURRED) -fsanitize=address,undefined -fno-sanitize-recover=all
VARIANT_FLAGS.tsan := $(BLURRED) -fsanitize=thread
VARIANT_FLAGS.fuzz := -O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
VARIANT_FLAGS.coverage := -O0 --coverage -fprofile-update=atomic
ifeq ($(origin VARIANT_FLAGS.$(VARIANT)),undefined)
$(error unknown VARIANT '$(VARIANT)': expected debug, asan, tsan, fuzz or coverage)
endif
VARIANT_FLAGS := $(VARIANT_FLAGS.$(VARIANT))

FUSE_CFLAGS := $(shell pkg-config --cflags fuse3 2>/dev/null) -DFUSE_USE_VERSION=314
LIBS := -lfuse3 -lsqlite3 -lcjson -lmd -lcurl -lssh2 -ldl

# Layers, lowest first: one archive for the folders of each. Mains are not in archives.
LAYERS := base wire workspace providers session ledger conformance fusefs execshim
DIRS.base := providers/base
DIRS.wire := providers/wire
DIRS.workspace := providers/workspace providers/helper
DIRS.providers := providers providers/transport providers/memory providers/local \
	providers/docker providers/ssh providers/e2b providers/gke
DIRS.session := providers/session
DIRS.ledger := ledger
DIRS.conformance := providers/conformance
DIRS.fusefs := fusefs
DIRS.execshim := execshim execshim/tools execshim/mcp execshim/lib

objs = $(patsubst %.c,$(BUILD)/%.o,$(1))
is_main = $(filter %/main.c %_main.c,$(1))
not_main = $(filter-out %/main.c %_main.c,$(1))
layer_sources = $(call not_main,$(foreach d,$(DIRS.$(1)),$(wildcard $(d)/*.c)))
lib = $(BUILD)/libpai-$(1).a
ALL_ARCHIVES := $(foreach l,$(LAYERS),$(call lib,$(l)))
GROUP := -Wl,--start-group $(ALL_ARCHIVES) -Wl,--end-group

# What a loaded provider may call: kept whole and exported.
HOST_LAYERS := base wire workspace providers
HOST_ARCHIVES := $(foreach l,$(HOST_LAYERS),$(call lib,$(l)))
HOST_LINK := -rdynamic -Wl,--whole-archive $(HOST_ARCHIVES) -Wl,--no-whole-archive $(GROUP)
EXEC_LINK := $(foreach l,execshim wire base,$(call lib,$(l)))
# The local provider and the posix server too: what is at the far end of a line. No third party.
HELPER_LINK := -Wl,--start-group $(foreach l,providers workspace wire base,$(call lib,$(l))) \
	-Wl,--end-group

# program main link-with
PROGRAM_TABLE := paifs:fusefs/main.c:HOST_LINK pai-exec:execshim/pai_exec_main.c:EXEC_LINK \
	pai:execshim/pai_main.c:EXEC_LINK pai-helper:providers/helper/main.c:HELPER_LINK \
	pai-conformance:providers/conformance/main.c:HOST_LINK
field = $(word $(2),$(subst :, ,$(1)))
PROGRAMS := $(strip $(foreach p,$(PROGRAM_TABLE),$(if $(wildcard $(call field,$(p),2)),\
	$(BUILD)/$(call field,$(p),1))))

# The static helper that is put on other machines, one for each architecture: of musl where there is
# one, which makes it small, and of what glibc has for the rest. PAI_STATIC: nothing may be loaded.
HOST_ARCH := $(shell uname -m)
HELPER_CC.x86_64 := $(if $(filter x86_64,$(HOST_ARCH)),musl-gcc,x86_64-linux-gnu-gcc)
HELPER_CC.aarch64 := $(if $(filter aarch64,$(HOST_ARCH)),musl-gcc,aarch64-linux-gnu-gcc)
HELPER_ARCHES := x86_64 aarch64
HELPERS := $(HELPER_ARCHES:%=build/helper/pai-helper-%)
# A cross compiler may be there without its C library.
compiles = $(shell $(1) -include stdio.h -E -x c /dev/null >/dev/null 2>&1 && echo yes)
HELPER_ARCHES_HERE := $(foreach a,$(HELPER_ARCHES),$(if $(call compiles,$(HELPER_CC.$(a))),$(a)))
HELPERS_HERE := $(HELPER_ARCHES_HERE:%=build/helper/pai-helper-%)
# musl-gcc knows no kernel headers, and musl not all that glibc has.
HELPER_CFLAGS.musl-gcc := -include providers/base/compat.h -idirafter /usr/include \
	-idirafter /usr/include/$(HOST_ARCH)-linux-gnu
HELPER_CFLAGS = -std=gnu17 $(WARN) -Os -ffunction-sections -fdata-sections -fno-common \
	-fno-asynchronous-unwind-tables -fstack-protector-strong -pthread -DPAI_STATIC \
	-ffile-prefix-map=$(CURDIR)=. -MMD -MP $(HELPER_CFLAGS.$(HELPER_CC))
HELPER_LDFLAGS := -static -s -pthread -Wl,--gc-sections -Wl,-z,relro,-z,now,-z,stack-size=1048576
HELPER_SOURCES := $(filter-out providers/base/json.c providers/base/json_err.c \
	providers/base/key_hash.c providers/base/scope.c,$(call not_main,$(foreach d,base wire workspace helper local,\
	$(wildcard providers/$(d)/*.c)))) providers/provider.c

UNIT_AREAS := $(sort $(patsubst tests/unit/%/,%,$(dir $(wildcard tests/unit/*/test_*.c))))
UNIT_BINS := $(UNIT_AREAS:%=$(BUILD)/tests/unit-%)
FUZZ_NAMES := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_BINS := $(FUZZ_NAMES:%=$(BUILD)/tests/fuzz-%)
REPLAY_BINS := $(FUZZ_NAMES:%=$(BUILD)/tests/replay-%)
# Plain-main programs, each linked with everything: tests/stress/x.c is build/.../tests/stress-x.
# Torture defines malloc, which the sanitizers do too.
MAIN_KINDS := stress bench integration $(if $(filter asan tsan fuzz,$(VARIANT)),,torture)
MAIN_BINS := $(foreach k,$(MAIN_KINDS),\
	$(patsubst tests/$(k)/%.c,$(BUILD)/tests/$(k)-%,$(wildcard tests/$(k)/*.c)))
# Programs of several files: tests/d/x_main.c is build/.../tests/d-x, tests/d/main.c is d-main; each
# links the other files of its folder.
TEST_MAINS := $(wildcard tests/*/main.c tests/*/*_main.c)
test_main_bin = $(BUILD)/tests/$(subst /,-,$(patsubst tests/%.c,%,$(subst _main.c,.c,$(1))))
FOLDER_BINS := $(foreach m,$(TEST_MAINS),$(call test_main_bin,$(m)))
PLUGINS := $(patsubst tests/plugins/%.c,$(BUILD)/tests/%.so,$(wildcard tests/plugins/*.c))

# make V=1 shows the commands.
Q := $(if $(V),,@)
say = @$(if $(V)$(findstring s,$(firstword -$(MAKEFLAGS))),true,echo "  $(1) $@")

.DEFAULT_GOAL := all
.SECONDARY:
.DELETE_ON_ERROR:

all: $(PROGRAMS) $(ALL_ARCHIVES) $(HELPERS_HERE) ## build the programs and libraries (default)
	@$(foreach a,$(filter-out $(HELPER_ARCHES_HERE),$(HELPER_ARCHES)),echo \
		"no working $(HELPER_CC.$(a)): no pai-helper for $(a) machines (make helpers installs it)";)

helpers: ## build pai-helper for every kind of remote machine
	@$(if $(filter-out $(HELPER_ARCHES_HERE),$(HELPER_ARCHES)),contrib/deps.sh helpers)
	@$(MAKE) --no-print-directory $(HELPERS)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n",$$1,$$2}' $(MAKEFILE_LIST)

$(BUILD)/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(CPPFLAGS) $(EXTRA) $(ALL_CFLAGS) -c -o $@ $<

# fuse is named in one folder; tests include that folder's headers.
$(BUILD)/fusefs/%.o $(BUILD)/tests/%.o: EXTRA := $(FUSE_CFLAGS)

# $(1) layer. An archive is written anew, so that a removed source leaves it.
define layer_rule
$(call lib,$(1)): $(call objs,$(call layer_sources,$(1)))
	@mkdir -p $$(@D)
	@rm -f $$@
	$$(call say,AR)
	$$(Q)$$(AR) rcsD $$@ $$^
endef
$(foreach l,$(LAYERS),$(eval $(call layer_rule,$(l))))

# $(1) program $(2) main $(3) name of the variable with what it links
define program_rule
$(BUILD)/$(1): $(call objs,$(2)) $$(filter %.a,$$($(3)))
	$$(call say,LD)
	$$(Q)$$(CC) $$(ALL_LDFLAGS) -o $$@ $$< $$($(3)) $$(LIBS)
endef
$(foreach p,$(PROGRAM_TABLE),$(eval $(call program_rule,$(call field,$(p),1),$(call \
	field,$(p),2),$(call field,$(p),3))))

# $(1) architecture
define helper_rule
build/helper/$(1)/%.o: HELPER_CC := $(HELPER_CC.$(1))
build/helper/$(1)/%.o: %.c Makefile providers/base/compat.h
	@mkdir -p $$(@D)
	$$(call say,CC)
	$$(Q)$(HELPER_CC.$(1)) $$(CPPFLAGS) $$(HELPER_CFLAGS) -c -o $$@ $$<
build/helper/pai-helper-$(1): $(patsubst %.c,build/helper/$(1)/%.o,providers/helper/main.c \
	$(HELPER_SOURCES))
	$$(call say,LD)
	$$(Q)$(HELPER_CC.$(1)) $$(HELPER_LDFLAGS) -o $$@ $$^
build/helper/replay-%-$(1): build/helper/$(1)/tests/fuzz/fuzz_%.o build/helper/$(1)/tests/fuzz/replay.o \
	$(patsubst %.c,build/helper/$(1)/%.o,$(HELPER_SOURCES))
	$$(call say,LD)
	$$(Q)$(HELPER_CC.$(1)) $$(HELPER_LDFLAGS) -o $$@ $$^
endef
$(foreach a,$(HELPER_ARCHES),$(eval $(call helper_rule,$(a))))

# libpai, for programs that are not ours: its own objects, position-independent, of which nothing
# but libpai.h's names is seen outside.
LIBPAI_SOURCES := $(wildcard execshim/lib/*.c) $(addprefix execshim/,box.c caller.c client.c \
	exec_frames.c exec_run.c locate.c sink.c start.c target.c tty.c) \
	$(call layer_sources,wire) $(call layer_sources,base)
LIBPAI_OBJS := $(LIBPAI_SOURCES:%.c=$(BUILD)/pic/%.o)
LIBPAI_SO := libpai.so.$(firstword $(subst ., ,$(VERSION)))
LIBPAI_LIBS := -lcjson -lmd -pthread
LIBPAI := $(BUILD)/libpai.a $(BUILD)/$(LIBPAI_SO)

$(BUILD)/pic/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(CPPFLAGS) $(filter-out -fPIE,$(ALL_CFLAGS)) -fPIC -fvisibility=hidden -c -o $@ $<
$(BUILD)/libpai.a: $(LIBPAI_OBJS)
	$(call say,AR)
	@rm -f $@
	$(Q)$(CC) -r -nostdlib -o $(BUILD)/pic/libpai.o $^
	$(Q)objcopy --localize-hidden $(BUILD)/pic/libpai.o
	$(Q)$(AR) rcsD $@ $(BUILD)/pic/libpai.o
$(BUILD)/$(LIBPAI_SO): $(LIBPAI_OBJS)
	$(call say,LD)
	$(Q)$(CC) $(filter-out -pie,$(ALL_LDFLAGS)) -shared -Wl,-soname,$(LIBPAI_SO),-z,defs -o $@ $^ \
		$(LIBPAI_LIBS)

# $(1) area
define unit_rule
$(BUILD)/tests/unit-$(1): $(call objs,$(wildcard tests/unit/$(1)/*.c) tests/unit/lsan.c) \
	$$(ALL_ARCHIVES)
	@mkdir -p $$(@D)
	$$(call say,LD)
	$$(Q)$$(CC) $$(ALL_LDFLAGS) -o $$@ $$(filter %.o,$$^) $$(GROUP) $$(LIBS) -lcriterion
endef
$(foreach a,$(UNIT_AREAS),$(eval $(call unit_rule,$(a))))

$(BUILD)/tests/fuzz-%: $(BUILD)/tests/fuzz/fuzz_%.o $(ALL_ARCHIVES)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -fsanitize=fuzzer -o $@ $< $(GROUP) $(LIBS)

$(BUILD)/tests/replay-%: $(BUILD)/tests/fuzz/fuzz_%.o $(BUILD)/tests/fuzz/replay.o $(ALL_ARCHIVES)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) $(GROUP) $(LIBS)

# $(1) folder
define main_rule
$(BUILD)/tests/$(1)-%: $(BUILD)/tests/$(1)/%.o $$(ALL_ARCHIVES)
	@mkdir -p $$(@D)
	$$(call say,LD)
	$$(Q)$$(CC) $$(ALL_LDFLAGS) -o $$@ $$< $$(GROUP) $$(LIBS)
endef
$(foreach k,$(MAIN_KINDS),$(eval $(call main_rule,$(k))))

# $(1) main
define test_main_rule
$(call test_main_bin,$(1)): $(call objs,$(1) $(call not_main,$(wildcard $(dir $(1))*.c))) \
	$$(ALL_ARCHIVES)
	@mkdir -p $$(@D)
	$$(call say,LD)
	$$(Q)$$(CC) $$(ALL_LDFLAGS) -o $$@ $$(filter %.o,$$^) $$(GROUP) $$(LIBS)
endef
$(foreach m,$(TEST_MAINS),$(eval $(call test_main_rule,$(m))))

# A plugin takes pai_* from the program that loads it.
$(BUILD)/tests/%.so: tests/plugins/%.c Makefile
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(CPPFLAGS) $(filter-out -fPIE,$(ALL_CFLAGS)) -fPIC -shared -o $@ $<

.PHONY: all help helpers build-tests unit integration lint fuzz-replay fuzz asan tsan coverage check \
	check-fast check-long bench up down install format deps test-deps clean tsan-bins fuzz-bins

# The codecs that the static helper speaks, replayed where it runs.
HELPER_REPLAYS := $(foreach a,$(HELPER_ARCHES_HERE),$(foreach f,$(filter \
	frame %_msg local_meta,$(filter-out control_msg,$(FUZZ_NAMES))),build/helper/replay-$(f)-$(a)))
TEST_BINS := $(LIBPAI) $(HELPER_REPLAYS) $(UNIT_BINS) $(REPLAY_BINS) $(MAIN_BINS) $(FOLDER_BINS) $(PLUGINS)
tsan-bins: all $(BUILD)/libpai.a $(filter $(BUILD)/tests/stress-% $(BUILD)/tests/tester-%,$(MAIN_BINS) $(FOLDER_BINS))
fuzz-bins: $(FUZZ_BINS)
build-tests: all $(TEST_BINS) ## build every test program too

RUN := PAI_BUILD=$(BUILD) tests/run
unit: build-tests ## unit tests
	$(RUN) unit
integration: build-tests ## integration tests
	$(RUN) integration
lint: ## layer law, headers, function sizes, banned calls, format
	$(RUN) lint
fuzz-replay: build-tests ## the fuzz corpus as a normal test
	$(RUN) fuzz-replay
fuzz: ## build the libFuzzer programs (clang)
	$(MAKE) VARIANT=fuzz fuzz-bins
asan: ## unit tests, corpus and a mount under address and undefined sanitizers
	$(MAKE) VARIANT=asan build-tests
	$(RUN) asan
tsan: ## the stress programs and a mount under the thread sanitizer
	$(MAKE) VARIANT=tsan tsan-bins
	$(RUN) tsan
check: test-deps ## everything in its short form
	$(RUN) check
check-fast: build-tests ## under a minute once built: lint, unit, fast integration
	$(RUN) check-fast
check-long: test-deps ## everything at full length
	PAI_LONG=1 $(RUN) check-long
coverage: test-deps ## line coverage of the unit tests
	contrib/deps.sh coverage
	$(MAKE) VARIANT=coverage build-tests
	find build/coverage -name '*.gcda' -delete
	PAI_BUILD=build/coverage tests/run unit
	lcov -q -c -d build/coverage --no-external -b . -o build/coverage/all.info
	lcov -q -r build/coverage/all.info '*/tests/*' -o build/coverage/lines.info
	lcov --list build/coverage/lines.info
bench: ## benchmarks, as ratios to peers in one run
	contrib/deps.sh build bench
	$(MAKE) all $(BUILD)/tests/bench-ops $(BUILD)/tests/integration-ssh_stream
	PAI_BUILD=$(BUILD) tests/bench/run $(BENCH)

# A make of its own: what pkg-config says is read before a rule runs.
up: deps ## mount `local` at $(MNT) and show it working
	@$(MAKE) --no-print-directory all
	@contrib/up.sh up $(BUILD) "$(MNT)"
down: ## undo `make up`
	@contrib/up.sh down $(BUILD) "$(MNT)"

BINDIR := $(DESTDIR)$(PREFIX)/bin
LIBDIR := $(DESTDIR)$(PREFIX)/lib
LIBEXECDIR := $(DESTDIR)$(PREFIX)/libexec/paifs
INCDIR := $(DESTDIR)$(PREFIX)/include/paifs
# The contract's two headers and what they include.
PUBLIC_HEADERS = $(filter providers/%,$(shell $(CC) $(CPPFLAGS) -MM -x c \
	-include providers/provider.h -include providers/provider_ops.h /dev/null))

$(BUILD)/libpaiprovider.a: $(call objs,$(foreach l,$(HOST_LAYERS),$(call layer_sources,$(l))))
	@rm -f $@
	$(call say,AR)
	$(Q)$(AR) rcsD $@ $^

install: all $(BUILD)/libpaiprovider.a $(LIBPAI) ## install to $(DESTDIR)$(PREFIX)
	install -d $(BINDIR) $(LIBDIR)/pkgconfig $(INCDIR) $(DESTDIR)$(PREFIX)/sbin
	$(if $(PROGRAMS),install -m 755 $(PROGRAMS) $(BINDIR))
	$(if $(HELPERS_HERE),install -d $(LIBEXECDIR))
	$(if $(HELPERS_HERE),install -m 755 $(HELPERS_HERE) $(LIBEXECDIR))
	ln -sf ../bin/paifs $(DESTDIR)$(PREFIX)/sbin/mount.fuse.paifs
	install -m 644 $(BUILD)/libpaiprovider.a $(LIBDIR)
	$(foreach h,$(PUBLIC_HEADERS),install -D -m 644 $(h) $(INCDIR)/$(h) &&) true
	install -m 644 execshim/lib/libpai.h $(INCDIR)/..
	install -m 644 $(BUILD)/libpai.a $(LIBDIR)
	install -m 755 $(BUILD)/$(LIBPAI_SO) $(LIBDIR)
	ln -sf $(LIBPAI_SO) $(LIBDIR)/libpai.so
	$(foreach pc,paifs-provider libpai,sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' \
		contrib/$(pc).pc.in > $(LIBDIR)/pkgconfig/$(pc).pc &&) true

format: ## clang-format every source in place
	git ls-files '*.c' '*.h' | xargs clang-format -i

deps: ## install the Debian packages that are missing
	contrib/deps.sh build
test-deps: ## and those that the tests need
	contrib/deps.sh build test

clean: ## remove build/
	rm -rf build

-include $(shell find $(BUILD) build/helper -name '*.d' 2>/dev/null)
