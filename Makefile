# SPDX-License-Identifier: MIT
#
# memtally: everything is built in $(B).  V=1 shows the commands, WERROR=1
# makes warnings errors, T=word runs only the tests whose names contain it.

B      ?= build
CC     ?= gcc
CFLAGS ?= -O2 -g
PREFIX ?= /usr/local
Q      := $(if $(filter 1,$(V)),,@)
say     = $(if $(filter 1,$(V)),,@printf '  %-7s %s\n' $(1) $@)

# What is missing is installed (as root), or named in one line, before anything
# below looks for it; once, not again in every make that this one starts.
NO_DEPS := clean uninstall format format-check
ifneq ($(filter-out $(NO_DEPS),$(or $(MAKECMDGOALS),all)),)
ifeq ($(DEPS_DONE)$(findstring n,$(filter-out --%,$(firstword -$(MAKEFLAGS)))),)
ifneq ($(shell CC='$(CC)' tests/deps.sh base >&2 || echo missing),)
$(error cannot go on without these packages)
endif
export DEPS_DONE := 1
endif
endif

WARN   := -Wall -Wextra -Wshadow -Wundef -Wvla -Wstrict-prototypes \
	  -Wmissing-prototypes $(if $(filter 1,$(WERROR)),-Werror)
BASE   := -std=gnu17 -D_GNU_SOURCE -I. $(WARN) -fvisibility=hidden \
	  -fno-omit-frame-pointer -MMD -MP $(CFLAGS) $(SAN)
# Initial-exec: any other thread-local storage may allocate at first use.
SHIM   := -fPIC -ftls-model=initial-exec -fno-builtin-malloc \
	  -fno-builtin-calloc
CJSON  := $(shell pkg-config --libs libcjson 2>/dev/null || echo -lcjson)
DW     := $(shell pkg-config --libs libdw libelf 2>/dev/null || echo -ldw -lelf) -ldl
CURSES := $(shell pkg-config --libs ncursesw tinfo 2>/dev/null || echo -lncursesw -ltinfo)
CHECK  := $(shell pkg-config --libs check 2>/dev/null || echo -lcheck)

CORE    := $(patsubst %.c,$(B)/%.o,$(wildcard core/*.c))
PRELOAD := $(patsubst %.c,$(B)/%.o,$(wildcard preload/*.c))
TOOLS   := $(patsubst %.c,$(B)/%.o,$(wildcard tools/*.c))
UNIT    := $(patsubst %.c,$(B)/%,$(wildcard tests/unit/check_*.c))
PROGS   := $(patsubst %.c,$(B)/%,$(wildcard tests/preload/*.c))
BENCHES := $(B)/tests/bench/micro
LOCK_NAMES := plain disable mixed restore ours
LOCK_plain := 1
LOCK_disable := 2
LOCK_restore := 3
LOCK_mixed := 4
LOCKS   := $(patsubst %,$(B)/bench/lock-%,$(LOCK_NAMES))
COUNTERS := $(patsubst %,$(B)/bench/%/counter,today always packed alone)
STRESS  := $(patsubst %.c,$(B)/%,$(wildcard tests/stress/*.c))
SOURCES := $(wildcard core/*.[ch] preload/*.[ch] tools/*.[ch] tests/*/*.[ch])

all: $(B)/memtally $(B)/libmemtally.so

include preload/jemalloc.mk

$(B)/core/%.o: core/%.c Makefile
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(BASE) $(SHIM) -c -o $@ $<

$(B)/preload/%.o: preload/%.c Makefile
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(BASE) $(SHIM) -c -o $@ $<

$(B)/tools/%.o: tools/%.c Makefile
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(BASE) -c -o $@ $<

$(B)/tests/%.o: tests/%.c Makefile
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(BASE) -O1 -fno-builtin -pthread -c -o $@ $<

$(B)/libmemtally-core.a: $(CORE)
	$(call say,AR)
	$(Q)rm -f $@ && ar rcs $@ $^

# The version node is anonymous: a named one silently disables interposition.
$(B)/libmemtally.so: $(PRELOAD) $(CORE) $(JEMALLOC_O) preload/exports.map
	$(call say,LD)
	$(Q)$(CC) -shared $(CFLAGS) $(LDFLAGS) -Wl,-z,defs,-z,relro,-z,now \
		-Wl,-z,nodelete,--hash-style=gnu,-soname,libmemtally.so \
		-Wl,--version-script=preload/exports.map \
		-o $@ $(filter %.o,$^)

$(B)/memtally: $(TOOLS) $(B)/libmemtally-core.a
	$(call say,LD)
	$(Q)$(CC) $(SAN) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $^ $(CJSON) $(DW) $(CURSES)

$(B)/tests/unit/check_%: $(B)/tests/unit/check_%.o $(B)/libmemtally-core.a
	$(call say,LD)
	$(Q)$(CC) $(SAN) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $^ $(CHECK)

$(B)/tests/stress/%: $(B)/tests/stress/%.o $(B)/libmemtally-core.a
	$(call say,LD)
	$(Q)$(CC) $(SAN) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $^

$(B)/tests/preload/%: $(B)/tests/preload/%.o
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -pthread -o $@ $< -ldl

$(B)/tests/bench/%: $(B)/tests/bench/%.o
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -pthread -o $@ $< -ldl

# Done above, for every target.
deps:
	@:

check: all layers $(UNIT) $(PROGS) $(B)/tests/stress/kill_storm \
		$(B)/tests/stress/limit_holds $(COUNTERS) $(LOCKS)
	@B=$(B) T='$(T)' tests/check.sh

# The heap's tests again with huge pages made by the system; needs root.
check-huge: all $(PROGS)
	@B=$(B) tests/huge.sh

check-programs: all
	@tests/deps.sh programs
	@B=$(B) T='$(T)' tests/programs/run.sh

demo: all
	@B=$(B) tests/demo.sh

# One for each variant of core, see tests/bench/variant.sh.
$(B)/bench/%/counter: tests/bench/counter.c tests/bench/variant.sh \
		$(wildcard core/*.[ch])
	$(call say,CC)
	$(Q)tests/bench/variant.sh $* $(@D)
	$(Q)$(CC) -std=gnu17 -D_GNU_SOURCE -I$(@D) $(CFLAGS) -pthread \
		-o $@ $< $(@D)/core/*.c

# The mapping table's lock, and the whole library with another.
$(B)/bench/lock-ours: $(B)/tests/bench/lock.o $(B)/preload/maplock.o
	$(Q)$(CC) $(CFLAGS) -pthread -o $@ $^

$(B)/bench/maplock-%.o: tests/bench/maplock_variant.c preload/maplock.h
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE) $(SHIM) -DLOCK=$(LOCK_$*) -c -o $@ $<

$(B)/bench/lock-%: $(B)/tests/bench/lock.o $(B)/bench/maplock-%.o
	$(Q)$(CC) $(CFLAGS) -pthread -o $@ $^

$(B)/bench/with-ours/memtally: all
	@mkdir -p $(@D)
	$(Q)cp $(B)/memtally $(B)/libmemtally.so $(@D)

$(B)/bench/with-%/memtally: $(B)/bench/maplock-%.o all
	@mkdir -p $(@D)
	$(Q)$(CC) -shared $(CFLAGS) $(LDFLAGS) -Wl,-z,defs,-z,relro,-z,now \
		-Wl,-z,nodelete,--hash-style=gnu,-soname,libmemtally.so \
		-Wl,--version-script=preload/exports.map \
		-o $(@D)/libmemtally.so $< $(CORE) $(JEMALLOC_O) \
		$(filter-out %/maplock.o,$(PRELOAD))
	$(Q)cp $(B)/memtally $(@D)

bench-counter: all $(COUNTERS) $(LOCKS)
	@B=$(B) LOCKS='$(LOCK_NAMES)' tests/bench/counter.sh

# A real build, RUNS times with each lock, in "/" and in a group below.
bench-build: all $(patsubst %,$(B)/bench/with-%/memtally,$(LOCK_NAMES))
	@B=$(B) LOCKS='$(LOCK_NAMES)' RUNS=$(or $(RUNS),30) tests/bench/build.sh

bench: all $(BENCHES)
	@tests/deps.sh bench
	@B=$(B) BENCH='$(BENCH)' tests/bench/run.sh

stress: all $(STRESS) $(B)/tests/preload/map_random
	@for t in $(STRESS); do echo "$$t"; $$t || exit 1; done
	@B=$(B) tests/stress/mappings.sh

# The preload library cannot carry a sanitizer's runtime, which owns malloc.
asan:
	@CK_FORK=no $(MAKE) --no-print-directory sanitized B=$(B)/asan \
		SAN='-fsanitize=address,undefined -fno-sanitize-recover=all'

tsan:
	@CK_FORK=no $(MAKE) --no-print-directory sanitized B=$(B)/tsan \
		SAN=-fsanitize=thread

sanitized: $(UNIT) $(B)/memtally
	@B=$(B) tests/unit.sh

# Any bytes as a segment, for a minute; needs clang.
FUZZ_TIME ?= 60
FUZZED    := -g -O1 -std=gnu17 -D_GNU_SOURCE -I. \
	     -DFUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
FUZZ_SRC  := tests/fuzz/fuzz_reader.c core/reader.c core/stall.c core/protection.c tools/model.c tools/proc.c \
	     tools/format.c

fuzz:
	@tests/deps.sh tidy
	@mkdir -p $(B)/fuzz/corpus
	$(call say,FUZZ)
	$(Q)clang $(FUZZED) -fsanitize=address,undefined -DMT_FUZZ_MAIN=1 \
		-o $(B)/fuzz/mutate $(FUZZ_SRC) $(CJSON)
	$(Q)clang $(FUZZED) -fsanitize=fuzzer,address,undefined \
		-o $(B)/fuzz/fuzz_reader $(FUZZ_SRC) $(CJSON)
	$(Q)$(B)/fuzz/mutate 20000
	$(Q)$(B)/fuzz/mutate -w $(B)/fuzz/corpus/seed
	$(Q)$(B)/fuzz/fuzz_reader -max_total_time=$(FUZZ_TIME) -max_len=16384 \
		-print_final_stats=1 $(B)/fuzz/corpus tests/fuzz/corpus
	$(Q)clang $(FUZZED) -DMT_FUZZ -fsanitize=fuzzer,address,undefined \
		-o $(B)/fuzz/fuzz_mapping tests/unit/check_mapping.c \
		core/mapping.c $(CHECK)
	$(Q)mkdir -p $(B)/fuzz/mappings
	$(Q)CK_FORK=no $(B)/fuzz/fuzz_mapping -max_total_time=$(FUZZ_TIME) \
		-max_len=400 -print_final_stats=1 $(B)/fuzz/mappings

# After a long run: the smallest set of inputs that reaches as far.
fuzz-keep:
	@mkdir -p $(B)/fuzz/kept && rm -f $(B)/fuzz/kept/*
	$(Q)$(B)/fuzz/fuzz_reader -merge=1 -max_len=16384 $(B)/fuzz/kept \
		$(B)/fuzz/corpus tests/fuzz/corpus
	$(Q)mkdir -p tests/fuzz/corpus && rm -f tests/fuzz/corpus/*
	$(Q)cp $(B)/fuzz/kept/* tests/fuzz/corpus/

layers: $(B)/libmemtally.so $(B)/libmemtally-core.a $(B)/memtally
	@B=$(B) tests/layers.sh

# After adding an MT_EXPORT: the list that the linker and `make layers` use.
exports: $(PRELOAD)
	@{ echo '{'; echo 'global:'; \
		tests/exported.sh $(PRELOAD) | sed 's/.*/	&;/'; \
		echo 'local:'; echo '	*;'; echo '};'; } > preload/exports.map

format:
	@tests/deps.sh format
	@clang-format -i $(SOURCES)

format-check:
	@tests/deps.sh format
	@clang-format --dry-run -Werror $(SOURCES)

tidy:
	@tests/deps.sh tidy
	@printf '%s\n' $(wildcard core/*.c tools/*.c preload/*.c) | \
		xargs -P "$$(nproc)" -I {} clang-tidy --quiet {} -- \
		-std=gnu17 -D_GNU_SOURCE -I. 2>/dev/null
	@cppcheck --quiet --error-exitcode=1 --inline-suppr -I. \
		--suppress=missingIncludeSystem -D_GNU_SOURCE -D__x86_64__=1 \
		core tools

# For editors.
compile_commands.json: Makefile
	@for f in $(filter %.c,$(SOURCES)); do \
		jq -n --arg d "$$PWD" --arg f "$$f" \
		--arg c '$(CC) $(BASE) $(SHIM) -c '"$$f" \
		'{directory: $$d, file: $$f, command: $$c}'; done | jq -s . >$@

VERSION := $(shell sed -n 's/^.define MT_VERSION "\(.*\)"/\1/p' tools/cmd.h)
SHARE    = $(DESTDIR)$(PREFIX)/share

# Manuals, and what is made for shells and compilers.
install-more: all
	install -d $(SHARE)/man/man1 $(SHARE)/man/man3 $(SHARE)/man/man5 \
		$(SHARE)/man/man7 $(SHARE)/bash-completion/completions \
		$(SHARE)/zsh/site-functions $(SHARE)/fish/vendor_completions.d \
		$(SHARE)/pkgconfig
	for n in 1 3 5 7; do install -m 644 tools/man/*.$$n $(SHARE)/man/man$$n/; done
	$(B)/memtally completions bash >$(SHARE)/bash-completion/completions/memtally
	$(B)/memtally completions zsh >$(SHARE)/zsh/site-functions/_memtally
	$(B)/memtally completions fish >$(SHARE)/fish/vendor_completions.d/memtally.fish
	printf 'prefix=%s\n\nName: memtally\nDescription: say whose memory is whose\nVersion: %s\nCflags: -I$${prefix}/include\n' \
		'$(PREFIX)' '$(VERSION)' >$(SHARE)/pkgconfig/memtally.pc

man-check:
	@tests/deps.sh man
	@! mandoc -Tlint -Wwarning tools/man/* | grep .

# A package for this machine's Debian: build/memtally_VERSION_ARCH.deb
deb:
	@$(MAKE) --no-print-directory install DESTDIR=$(B)/deb PREFIX=/usr
	@B=$(B) VERSION=$(VERSION) tools/deb.sh

install: all install-more
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/memtally
	install -m 755 $(B)/memtally $(DESTDIR)$(PREFIX)/bin/
	install -m 644 $(B)/libmemtally.so $(DESTDIR)$(PREFIX)/lib/memtally/
	install -d $(DESTDIR)$(PREFIX)/include
	install -m 644 preload/memtally.h $(DESTDIR)$(PREFIX)/include/
	install -d $(DESTDIR)$(PREFIX)/share/doc/memtally
	install -m 644 README.md LICENSE $(DESTDIR)$(PREFIX)/share/doc/memtally/

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/memtally \
		$(DESTDIR)$(PREFIX)/include/memtally.h
	rm -rf $(DESTDIR)$(PREFIX)/lib/memtally $(SHARE)/doc/memtally
	rm -f $(SHARE)/man/man1/memtally.1 $(SHARE)/man/man3/memtally.h.3 \
		$(SHARE)/man/man5/memtally-segment.5 \
		$(SHARE)/man/man7/memtally.7 $(SHARE)/pkgconfig/memtally.pc \
		$(SHARE)/bash-completion/completions/memtally \
		$(SHARE)/zsh/site-functions/_memtally \
		$(SHARE)/fish/vendor_completions.d/memtally.fish

clean:
	rm -rf $(B)

.PHONY: all deps check check-huge check-programs demo bench bench-counter \
	bench-build stress fuzz \
	fuzz-keep asan tsan sanitized \
	layers exports format format-check tidy install install-more uninstall \
	man-check deb clean
.SECONDARY:
.DELETE_ON_ERROR:
-include $(shell find $(B) -name '*.d' -type f 2>/dev/null)
