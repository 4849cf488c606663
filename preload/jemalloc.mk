# SPDX-License-Identifier: MIT
#
# jemalloc.mk - Debian's jemalloc as one object, under names of our own.
#
# The objects of libjemalloc_pic.a, without the C++ one.  Its public names get
# the prefix je_, and what it asks of the system goes to
# preload/jemalloc_sys.c.
#
# Every arena is born with our extent hooks.  Automatic ones are made with
# je_arena_config_default: it is weak here, and preload/heap.c has the strong
# one.  Arena 0 takes the hooks of the first base, which base.o makes with the
# default ones: there, "the default hooks" are ours.  (base.o also compares
# with them, to map metadata by itself: that stays as it is.)

JEMALLOC_A ?= $(firstword $(wildcard /usr/lib/*/libjemalloc_pic.a \
		/usr/lib/libjemalloc_pic.a))
JEMALLOC_O := $(B)/preload/jemalloc.o

$(JEMALLOC_O): preload/jemalloc.syms preload/jemalloc.mk $(JEMALLOC_A)
	$(call say,JE)
	$(Q)rm -rf $(B)/preload/jemalloc && mkdir -p $(B)/preload/jemalloc
	$(Q)cd $(B)/preload/jemalloc && ar x $(JEMALLOC_A) && \
		rm -f jemalloc_cpp*.o
	$(Q)cd $(B)/preload/jemalloc && objcopy --redefine-sym \
		je_ehooks_default_extent_hooks=mt_je_hooks base.*o
	$(Q)ld -r -o $(B)/preload/jemalloc/all.o $(B)/preload/jemalloc/*.pic.o
	$(Q)objcopy --redefine-syms=preload/jemalloc.syms \
		--weaken-symbol=je_arena_config_default \
		$(B)/preload/jemalloc/all.o $@
