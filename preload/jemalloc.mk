# SPDX-License-Identifier: MIT
#
# jemalloc.mk - Debian's jemalloc as one object, under names of our own.
#
# The objects of libjemalloc_pic.a, without the C++ one.  Public names get the
# prefix je_ and what is asked of the system goes to preload/jemalloc_sys.c
# (both: preload/jemalloc.syms).  Then some of its decisions become ours, in
# preload/heap.c:
#
#   je_arena_config_default         with what automatic arenas are made: weak,
#                                   for ours to be taken instead
#   je_ehooks_default_extent_hooks  in base.o: the hooks arena 0 has, whatever
#                                   the configuration says; and what base.o
#                                   takes for "map the metadata yourself"
#   je_arena_nthreads_get           in tcache.o: asked at a thread's end, to
#                                   purge an arena that nobody uses any more
#   je_tcache_gc_dalloc_event_handler  in thread_event.o: called after frees,
#                                   every 64 KiB of them
#
# The last lines fail the build if another version of jemalloc does not have
# these: it would run, and charge less than it should.

JEMALLOC_A ?= $(firstword $(wildcard /usr/lib/*/libjemalloc_pic.a \
		/usr/lib/libjemalloc_pic.a))
JEMALLOC_D := $(B)/preload/jemalloc
JEMALLOC_O := $(B)/preload/jemalloc.o

$(JEMALLOC_O): preload/jemalloc.syms preload/jemalloc.mk $(JEMALLOC_A)
	$(if $(JEMALLOC_A),,$(error libjemalloc_pic.a not found: \
		install libjemalloc-dev))
	$(call say,JE)
	$(Q)rm -rf $(JEMALLOC_D) && mkdir -p $(JEMALLOC_D)
	$(Q)cd $(JEMALLOC_D) && ar x $(JEMALLOC_A) && rm -f jemalloc_cpp*.o
	$(Q)objcopy --redefine-sym je_ehooks_default_extent_hooks=mt_je_hooks \
		$(JEMALLOC_D)/base.*o
	$(Q)objcopy --redefine-sym je_arena_nthreads_get=mt_je_nthreads_get \
		$(JEMALLOC_D)/tcache.*o
	$(Q)objcopy --redefine-sym \
		je_tcache_gc_dalloc_event_handler=mt_je_freed_much \
		$(JEMALLOC_D)/thread_event.*o
	$(Q)$(LD) -r -o $(JEMALLOC_D)/all.o $(JEMALLOC_D)/*.*.o
	$(Q)objcopy --redefine-syms=preload/jemalloc.syms \
		--weaken-symbol=je_arena_config_default $(JEMALLOC_D)/all.o $@
	$(Q)for s in 'U mt_je_hooks' 'U mt_je_nthreads_get' 'U mt_je_syscall' \
		'U mt_je_freed_much' \
		'V je_arena_config_default' 'V je_malloc_conf'; do \
		nm $@ | grep -q " $$s$$" || { rm -f $@; \
		echo "jemalloc.mk: no $$s: another jemalloc?" >&2; exit 1; }; \
	done
