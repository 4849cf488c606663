# SPDX-License-Identifier: MIT
#
# jemalloc.mk - Debian's jemalloc as one object, under names of our own.
#
# The objects of libjemalloc_pic.a, without the C++ one.  Its public names get
# the prefix je_, what it asks of the system goes to preload/jemalloc_sys.c,
# and the configuration with which it makes its automatic arenas is ours: so
# every arena is born with our extent hooks.

JEMALLOC_A ?= $(firstword $(wildcard /usr/lib/*/libjemalloc_pic.a \
		/usr/lib/libjemalloc_pic.a))
JEMALLOC_O := $(B)/preload/jemalloc.o

$(JEMALLOC_O): preload/jemalloc.syms $(JEMALLOC_A)
	$(call say,JE)
	$(Q)rm -rf $(B)/preload/jemalloc && mkdir -p $(B)/preload/jemalloc
	$(Q)cd $(B)/preload/jemalloc && ar x $(JEMALLOC_A) && \
		rm -f jemalloc_cpp*.o
	$(Q)cd $(B)/preload/jemalloc && for o in jemalloc.*o ctl.*o; do \
		objcopy --redefine-sym \
			je_arena_config_default=mt_je_arena_config $$o; done
	$(Q)ld -r -o $(B)/preload/jemalloc/all.o $(B)/preload/jemalloc/*.pic.o
	$(Q)objcopy --redefine-syms=preload/jemalloc.syms \
		$(B)/preload/jemalloc/all.o $@
