/* SPDX-License-Identifier: MIT */
/*
 * library.c - finding libmemtally.so and handing it to the loader.
 *
 * The loader only warns when it can't load a preloaded library, and the
 * program would run on uncounted and without its limit: so look first.
 */
#include "tools/library.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/segment.h"
#include "tools/cmd.h"

#define NAME "libmemtally.so"

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#define TRIPLET "x86_64-linux-gnu"
#else
#define MACHINE EM_AARCH64
#define TRIPLET "aarch64-linux-gnu"
#endif

static const char *const places[] = {
	NAME,
	"../lib/memtally/" NAME,
	"../lib/" TRIPLET "/memtally/" NAME,
	"../lib64/memtally/" NAME,
};

/* Why the loader will refuse it, or NULL. */
static const char *refusal(const char *path)
{
	const char *why = NULL;
	Elf64_Ehdr eh;
	void *page;
	int fd;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return strerror(errno);
	if (read(fd, &eh, sizeof(eh)) != (ssize_t)sizeof(eh) ||
	    memcmp(eh.e_ident, ELFMAG, SELFMAG) != 0 || eh.e_type != ET_DYN) {
		why = "not a shared library";
	} else if (eh.e_ident[EI_CLASS] != ELFCLASS64 ||
		   eh.e_machine != MACHINE) {
		why = "of another machine";
	} else {
		/* Fails on a file system without execution. */
		page = mmap(NULL, sizeof(eh), PROT_READ | PROT_EXEC,
			    MAP_PRIVATE, fd, 0);
		if (page == MAP_FAILED)
			why = strerror(errno);
		else
			munmap(page, sizeof(eh));
	}
	close(fd);
	return why;
}

static int failed(const char *what, const char *why)
{
	complain(what, why);
	return -1;
}

/* Is it a link of ours to this very library already? */
static bool is_link_to(const char *link, const char *path)
{
	char now[MT_PATH_MAX];
	ssize_t n = readlink(link, now, sizeof(now));

	return n > 0 && (size_t)n == strlen(path) &&
	       memcmp(now, path, (size_t)n) == 0;
}

/*
 * LD_PRELOAD can't name it: by a link that it can.  One for each library and
 * for good, since programs that run have it in their environment.
 */
static int use_link(const char *link_dir, char *path)
{
	char link[MT_PATH_MAX + 64];
	unsigned hash = 2166136261u;

	for (const char *c = path; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 16777619u;
	/* The '@' keeps it apart from sessions, the start is what the library
	 * knows itself by. */
	snprintf(link, sizeof(link), "%s/libmemtally@%08x.so", link_dir, hash);
	if (strlen(link) >= MT_PATH_MAX || strpbrk(link, ": \t\n"))
		return failed(path, "LD_PRELOAD can't name it");
	if (symlink(path, link) && !(errno == EEXIST && is_link_to(link, path)))
		return failed(link, strerror(errno));
	strcpy(path, link);
	return 0;
}

int library_find(const char *link_dir, char *path)
{
	char self[MT_PATH_MAX];
	const char *why;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 64);
	char *slash;

	if (n <= 0)
		return failed("/proc/self/exe", strerror(errno));
	self[n] = '\0';
	slash = strrchr(self, '/');
	for (size_t i = 0;; i++) {
		if (i == sizeof(places) / sizeof(places[0]))
			return failed(NAME, "not found beside memtally");
		strcpy(slash + 1, places[i]);
		if (!access(self, F_OK) && realpath(self, path))
			break;
	}
	why = refusal(path);
	if (why)
		return failed(path, why);
	return strpbrk(path, ": \t\n") ? use_link(link_dir, path) : 0;
}

/* Is this entry of the list a libmemtally*, by the library's own rule? */
static bool is_ours(const char *entry, size_t len)
{
	static const char start[] = "libmemtally";
	const char *slash = memrchr(entry, '/', len);
	const char *base = slash ? slash + 1 : entry;

	return len - (size_t)(base - entry) >= sizeof(start) - 1 &&
	       memcmp(base, start, sizeof(start) - 1) == 0;
}

void library_preload(const char *path)
{
	const char *old = getenv("LD_PRELOAD");
	char *value;
	char *at;

	old = old ? old : "";
	value = malloc(strlen(path) + strlen(old) + 2);
	if (!value)
		return;
	at = stpcpy(value, path);
	while (*old) {
		size_t len = strcspn(old, ": ");

		if (len && !is_ours(old, len)) {
			*at++ = ':';
			memcpy(at, old, len);
			at += len;
		}
		old += len + !!old[len];
	}
	*at = '\0';
	setenv("LD_PRELOAD", value, 1);
	free(value);
}
