/* SPDX-License-Identifier: MIT */
/*
 * cxx.c - operator new and delete.
 *
 * libstdc++'s call malloc and free, and would do.  But a program that is
 * linked with jemalloc gets that library's, which allocate inside it, while
 * what they gave is freed here.  So all of them are ours, and are malloc and
 * free; what they need of libstdc++ is there in any program that uses them.
 */
#include <stdlib.h>

#include "core/base.h"

/* std::get_new_handler() and std::__throw_bad_alloc(). */
__attribute__((weak)) void (*_ZSt15get_new_handlerv(void))(void);
__attribute__((weak, noreturn)) void _ZSt17__throw_bad_allocv(void);

/* The handler may free something and return: then it is tried again. */
static MT_COLD void *new_slow(size_t size, size_t align, int nothrow)
{
	for (;;) {
		void (*handler)(void) = _ZSt15get_new_handlerv
						? _ZSt15get_new_handlerv()
						: NULL;
		void *p;

		p = align ? aligned_alloc(align, size) : malloc(size);
		if (p)
			return p;
		if (handler && !nothrow)
			handler();
		else if (nothrow || !_ZSt17__throw_bad_allocv)
			return NULL;
		else
			_ZSt17__throw_bad_allocv();
	}
}

static inline void *new_plain(size_t size, int nothrow)
{
	void *p = malloc(size);

	return likely(p) ? p : new_slow(size, 0, nothrow);
}

static inline void *new_aligned(size_t size, size_t align, int nothrow)
{
	void *p = aligned_alloc(align, size);

	return likely(p) ? p : new_slow(size, align, nothrow);
}

/* Named as the C++ ABI mangles them: m is size_t, St11align_val_t the
 * alignment, RKSt9nothrow_t const std::nothrow_t &; w is one, a an array. */
#define OPERATOR_NEW(x)                                                        \
	void *_Zn##x##m(size_t size);                                          \
	void *_Zn##x##mRKSt9nothrow_t(size_t size, const void *);              \
	void *_Zn##x##mSt11align_val_t(size_t size, size_t align);             \
	void *_Zn##x##mSt11align_val_tRKSt9nothrow_t(                          \
		size_t size, size_t align, const void *);                      \
	MT_EXPORT void *_Zn##x##m(size_t size)                                 \
	{                                                                      \
		return new_plain(size, 0);                                     \
	}                                                                      \
	MT_EXPORT void *_Zn##x##mRKSt9nothrow_t(size_t size,                   \
						const void *tag MT_UNUSED)     \
	{                                                                      \
		return new_plain(size, 1);                                     \
	}                                                                      \
	MT_EXPORT void *_Zn##x##mSt11align_val_t(size_t size, size_t align)    \
	{                                                                      \
		return new_aligned(size, align, 0);                            \
	}                                                                      \
	MT_EXPORT void *_Zn##x##mSt11align_val_tRKSt9nothrow_t(                \
		size_t size, size_t align, const void *tag MT_UNUSED)          \
	{                                                                      \
		return new_aligned(size, align, 1);                            \
	}

#define OPERATOR_DELETE(name)                                                  \
	void name(void *p);                                                    \
	MT_EXPORT void name(void *p)                                           \
	{                                                                      \
		free(p);                                                       \
	}

OPERATOR_NEW(w)
OPERATOR_NEW(a)

/* Their further arguments (size, alignment, nothrow) are of no use here. */
OPERATOR_DELETE(_ZdlPv)
OPERATOR_DELETE(_ZdlPvm)
OPERATOR_DELETE(_ZdlPvRKSt9nothrow_t)
OPERATOR_DELETE(_ZdlPvSt11align_val_t)
OPERATOR_DELETE(_ZdlPvmSt11align_val_t)
OPERATOR_DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t)
OPERATOR_DELETE(_ZdaPv)
OPERATOR_DELETE(_ZdaPvm)
OPERATOR_DELETE(_ZdaPvRKSt9nothrow_t)
OPERATOR_DELETE(_ZdaPvSt11align_val_t)
OPERATOR_DELETE(_ZdaPvmSt11align_val_t)
OPERATOR_DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t)
