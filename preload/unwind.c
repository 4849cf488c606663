/* SPDX-License-Identifier: MIT */
/*
 * unwind.c - call stacks, by libunwind.
 *
 * It is loaded by the first thread that is refused something, so that nobody
 * else pays for it.  It needs no memory of the heap, works in signal handlers,
 * and finds a frame from the tables that every Debian program has.
 */
#include "preload/unwind.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <time.h>

#include "core/atomic.h"
#include "core/sys.h"
#include "preload/account.h"
#include "preload/context.h"

#define PER_SECOND 10

/* What loading and walking may take of the stack, with much room to spare: of
 * a refusal, whose own path takes 6 KiB, less than 9 in all were seen. */
#define STACK_TO_LOAD 32768
#define STACK_TO_WALK 16384

#define UNKNOWN (UINT64_C(0xff) << 56)
#define OFFSET  ((UINT64_C(1) << 56) - 1)

typedef int backtrace_fn(void **frames, int most);

enum { NOT_TRIED, TRYING, TRIED };
static _Atomic uint32_t tried;
static _Atomic uintptr_t backtrace_at;

/* The loader is not at work, in this thread or another: its lists are whole,
 * and nobody waits in a constructor for what this thread holds. */
static bool loader_at_rest(void)
{
	return _r_debug.r_state == RT_CONSISTENT;
}

/* Bytes below us on this thread's stack, as far as can be told. */
static size_t stack_left(void)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);
	struct rlimit limit;
	pthread_attr_t attr;
	size_t size = 0;
	void *low = NULL;

	/* The first thread's grows to its limit; asking reads all of maps. */
	if (mt_sys_gettid() == mt_sys_getpid()) {
		extern void *__libc_stack_end;
		uintptr_t top = (uintptr_t)__libc_stack_end;

		if (mt_syscall4(SYS_prlimit64, 0, RLIMIT_STACK, NULL, &limit) ||
		    here > top || top - here > limit.rlim_cur)
			return 0;
		return limit.rlim_cur - (top - here);
	}
	if (pthread_getattr_np(pthread_self(), &attr))
		return 0;
	if (pthread_attr_getstack(&attr, &low, &size))
		low = NULL;
	pthread_attr_destroy(&attr);
	if (!low || here < (uintptr_t)low || here > (uintptr_t)low + size)
		return 0;
	return here - (uintptr_t)low;
}

/*
 * libunwind asks the kernel whether an address can be read by writing from it
 * into a pipe, which it keeps.  A program that closes what it doesn't know, and
 * opens files, would find them written to.  So its calls are led here: the pipe
 * is none, and it is another system call that says what can be read.
 */
#define PIPE_IN  (-1000)
#define PIPE_OUT (-1001)

static int no_pipe(int *fds, int flags MT_UNUSED)
{
	fds[0] = PIPE_IN;
	fds[1] = PIPE_OUT;
	return 0;
}

static ssize_t try_to_read(int fd MT_UNUSED, const void *at, size_t len)
{
	char byte;
	struct iovec to = { &byte, 1 };
	struct iovec from = { (void *)(uintptr_t)at, 1 };
	long got = mt_syscall6(SYS_process_vm_readv, mt_sys_getpid(), (long)&to,
			       1, (long)&from, 1, 0);

	if (got == 1)
		return (ssize_t)len;
	errno = EFAULT;
	return -1;
}

/* Its own way to write to the pipe. */
static long led_syscall(long nr, long a, long b, long c, long d, long e, long f)
{
	long ret;

	if (nr == SYS_write && (int)a == PIPE_OUT)
		return try_to_read((int)a, (const void *)b, (size_t)c);
	ret = mt_syscall6(nr, a, b, c, d, e, f);
	if (ret >= 0 || ret < -4095)
		return ret;
	errno = (int)-ret;
	return -1;
}

static ssize_t led_write(int fd, const void *at, size_t len)
{
	return led_syscall(SYS_write, fd, (long)at, (long)len, 0, 0, 0);
}

static ssize_t led_read(int fd, void *buf, size_t len)
{
	if (fd == PIPE_IN) {
		errno = EAGAIN;
		return -1;
	}
	return led_syscall(SYS_read, fd, (long)buf, (long)len, 0, 0, 0);
}

static int led_close(int fd)
{
	if (fd == PIPE_IN || fd == PIPE_OUT)
		return 0;
	return (int)led_syscall(SYS_close, fd, 0, 0, 0, 0, 0);
}

static uintptr_t instead_of(const char *name)
{
	static const struct {
		const char *name;
		uintptr_t to;
	} all[] = {
		{ "pipe2", (uintptr_t)no_pipe },
		{ "pipe", (uintptr_t)no_pipe },
		{ "read", (uintptr_t)led_read },
		{ "write", (uintptr_t)led_write },
		{ "close", (uintptr_t)led_close },
		{ "syscall", (uintptr_t)led_syscall },
	};

	for (size_t i = 0; i < MT_ARRAY_SIZE(all); i++) {
		if (strcmp(name, all[i].name) == 0)
			return all[i].to;
	}
	return 0;
}

/* Was what is at @at made unwritable when it was bound? */
static bool is_sealed(const struct link_map *map, uintptr_t at)
{
	const ElfW(Ehdr) *header = (const void *)map->l_addr;
	const ElfW(Phdr) *phdr = (const void *)(map->l_addr + header->e_phoff);

	for (int i = 0; i < header->e_phnum; i++) {
		if (phdr[i].p_type == PT_GNU_RELRO &&
		    at - phdr[i].p_vaddr < phdr[i].p_memsz)
			return true;
	}
	return false;
}

static void redirect_one(const struct link_map *map, uintptr_t at, uintptr_t to)
{
	_Atomic uintptr_t *slot = (_Atomic uintptr_t *)(map->l_addr + at);
	size_t page = mt_page_size();
	char *start = (char *)((uintptr_t)slot & ~(page - 1));

	if (!is_sealed(map, at)) {
		store_relaxed(slot, to);
	} else if (!mt_sys_mprotect(start, page, PROT_READ | PROT_WRITE)) {
		store_relaxed(slot, to);
		mt_sys_mprotect(start, page, PROT_READ);
	}
}

/* Its own part of the table of imports: nobody else's calls change. */
static bool redirect(const struct link_map *map)
{
	const ElfW(Rela) * relocations[2] = { NULL, NULL };
	size_t sizes[2] = { 0, 0 };
	const ElfW(Sym) *symbols = NULL;
	const char *names = NULL;
	int redirected = 0;

	for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
		switch (d->d_tag) {
		case DT_JMPREL:
			relocations[0] = (const void *)d->d_un.d_ptr;
			break;
		case DT_PLTRELSZ:
			sizes[0] = d->d_un.d_val;
			break;
		case DT_RELA:
			relocations[1] = (const void *)d->d_un.d_ptr;
			break;
		case DT_RELASZ:
			sizes[1] = d->d_un.d_val;
			break;
		case DT_SYMTAB:
			symbols = (const void *)d->d_un.d_ptr;
			break;
		case DT_STRTAB:
			names = (const void *)d->d_un.d_ptr;
			break;
		}
	}
	for (int t = 0; symbols && names && t < 2; t++) {
		for (size_t i = 0;
		     relocations[t] && i < sizes[t] / sizeof(ElfW(Rela)); i++) {
			const ElfW(Rela) *r = &relocations[t][i];
			uint32_t symbol = (uint32_t)(r->r_info >> 32);
			uintptr_t to =
				symbol ? instead_of(names +
						    symbols[symbol].st_name)
				       : 0;

			if (to) {
				redirect_one(map, r->r_offset, to);
				redirected++;
			}
		}
	}
	/* One that has no pipe has none of these. */
	return redirected == 0 || redirected >= 4;
}

static void *load_library(void)
{
	void *library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
	struct link_map *map;

	if (library && !dlinfo(library, RTLD_DI_LINKMAP, &map) && redirect(map))
		return dlsym(library, "unw_backtrace");
	dlerror(); /* or the program would find it */
	return NULL;
}

static bool is_limited(int what)
{
	struct rlimit limit = { 0, 0 };

	mt_syscall4(SYS_prlimit64, 0, what, NULL, &limit);
	return limit.rlim_cur != RLIM_INFINITY;
}

static void load(void)
{
	uint32_t not_yet = NOT_TRIED;

	/* Where libc can't have memory for its thread-local data it aborts. */
	if (!loader_at_rest() || stack_left() < STACK_TO_LOAD ||
	    is_limited(RLIMIT_AS) || is_limited(RLIMIT_DATA) ||
	    !cas_seq_cst(&tried, &not_yet, TRYING))
		return;
	/* A program that has it loaded uses the pipe, and knows. */
	if (!dlopen("libunwind.so.8", RTLD_NOW | RTLD_NOLOAD))
		store_release(&backtrace_at, (uintptr_t)load_library());
	store_release(&tried, TRIED);
}

/* Ten in each second of the clock. */
static bool may_now(void)
{
	static _Atomic uint64_t slot; /* second << 8 | how many */
	uint64_t second = mt_sys_clock_ns(CLOCK_MONOTONIC) / 1000000000;
	uint64_t seen = load_relaxed(&slot);
	uint64_t n;

	do {
		n = seen >> 8 == second ? (seen & 0xff) + 1 : 1;
		if (n > PER_SECOND)
			return false;
	} while (!cas_weak_relaxed(&slot, &seen, second << 8 | n));
	return true;
}

/* ---- whose are the addresses ---- */

struct search {
	struct mt_record *record;
	void *const *frames;
	int nr;
	uintptr_t own; /* an address inside the shim */
	uint32_t nr_modules;
};

static void copy_build_id(struct mt_module *module,
			  const struct dl_phdr_info *info,
			  const ElfW(Phdr) * phdr)
{
	const char *at = (const char *)(info->dlpi_addr + phdr->p_vaddr);
	const char *end = at + phdr->p_memsz;

	while (at + sizeof(ElfW(Nhdr)) <= end) {
		const ElfW(Nhdr) *note = (const void *)at;
		const char *name = at + sizeof(*note);
		const char *value = name + ((note->n_namesz + 3) & ~3u);

		if (value + note->n_descsz > end)
			return;
		if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 &&
		    !memcmp(name, "GNU", 4)) {
			memcpy(module->build_id, value,
			       MT_MIN(note->n_descsz,
				      sizeof(module->build_id)));
			return;
		}
		at = value + ((note->n_descsz + 3) & ~3u);
	}
}

static void fill_module(struct mt_module *module,
			const struct dl_phdr_info *info)
{
	const char *path = info->dlpi_name ? info->dlpi_name : "";
	char self[256];
	size_t len;

	if (!*path) {
		long n = mt_syscall4(SYS_readlinkat, AT_FDCWD, "/proc/self/exe",
				     self, sizeof(self) - 1);

		self[n > 0 ? n : 0] = '\0';
		path = self;
	}
	len = strlen(path);
	if (len >= sizeof(module->path))
		path += len - (sizeof(module->path) - 1);
	memcpy(module->path, path, strlen(path) + 1);
	for (int i = 0; i < info->dlpi_phnum; i++) {
		if (info->dlpi_phdr[i].p_type == PT_NOTE)
			copy_build_id(module, info, &info->dlpi_phdr[i]);
	}
}

static bool covers(const struct dl_phdr_info *info, uintptr_t address)
{
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *phdr = &info->dlpi_phdr[i];

		if (phdr->p_type == PT_LOAD &&
		    address - (info->dlpi_addr + phdr->p_vaddr) < phdr->p_memsz)
			return true;
	}
	return false;
}

/* One loaded file: which of the addresses are in it? */
static int look_at_file(struct dl_phdr_info *info, size_t size MT_UNUSED,
			void *arg)
{
	struct search *search = arg;
	struct mt_record *record = search->record;
	bool own = covers(info, search->own);
	bool taken = false;

	for (int i = 0; i < search->nr; i++) {
		/* The call, not where it returns to: that may be another's. */
		uintptr_t at = (uintptr_t)search->frames[i] - 1;

		if (!covers(info, at))
			continue;
		if (own) {
			record->frames[i] = 0;
			continue;
		}
		if (search->nr_modules == MT_RECORD_MODULES)
			continue;
		record->frames[i] =
			(uint64_t)search->nr_modules << 56 |
			(((uintptr_t)search->frames[i] - info->dlpi_addr) &
			 OFFSET);
		taken = true;
	}
	if (taken)
		fill_module(&record->modules[search->nr_modules++], info);
	return 0;
}

static void name_frames(struct mt_record *record, void *const *frames, int nr)
{
	struct search search = { record, frames, nr,
				 (uintptr_t)(void *)mt_unwind, 0 };
	uint32_t n = 0;

	for (int i = 0; i < nr; i++)
		record->frames[i] = UNKNOWN | ((uintptr_t)frames[i] & OFFSET);
	dl_iterate_phdr(look_at_file, &search);
	/* Ours are of no interest. */
	for (int i = 0; i < nr; i++) {
		if (record->frames[i])
			record->frames[n++] = record->frames[i];
	}
	memset(&record->frames[n], 0,
	       (MT_RECORD_FRAMES - n) * sizeof(record->frames[0]));
	record->nr_frames = n;
}

void mt_unwind(struct mt_record *record, bool may_load)
{
	static MT_TLS bool inside;
	static MT_TLS bool walked;
	void *frames[MT_RECORD_FRAMES];
	backtrace_fn *backtrace;
	uint32_t previous;
	int nr = 0;

	/* A thread's first walk has libc allocate, and in a handler a thread
	 * can't be told how much stack is left, unless it is the first. */
	if (inside || mt_in_sandbox() || !may_now() ||
	    (!may_load && (!walked || mt_sys_gettid() != mt_sys_getpid())))
		return;
	inside = true;
	/* The program has nothing left, and doesn't owe what we take. */
	previous = mt_account_current();
	if (may_load)
		mt_account_enter(MT_NOBODY);
	if (may_load && load_relaxed(&tried) == NOT_TRIED)
		load();
	backtrace = (backtrace_fn *)load_acquire(&backtrace_at);
	if (backtrace && stack_left() >= STACK_TO_WALK) {
		walked = true;
		nr = backtrace(frames, MT_RECORD_FRAMES);
	}
	if (may_load)
		mt_account_enter(previous);
	if (nr > 0)
		name_frames(record, frames, nr);
	inside = false;
}
