/* SPDX-License-Identifier: MIT */
/*
 * target.c - looking at a program before it is started.
 *
 * Runs on the way to exec, perhaps in a vfork child on a borrowed stack: small
 * buffers, no allocation, system calls only.
 */
#include "core/target.h"

#include <elf.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base.h"
#include "core/sys.h"

#if defined(__x86_64__)
#define OUR_MACHINE EM_X86_64
#else
#define OUR_MACHINE EM_AARCH64
#endif

/* Shebang lines may name scripts: the kernel follows a few. */
#define SCRIPT_DEPTH 5

static ssize_t read_at(int fd, void *buf, size_t len, uint64_t offset)
{
	return mt_syscall4(SYS_pread64, fd, buf, len, offset);
}

static bool is_runtime_that_must_be_first(const char *name)
{
	static const char *const runtimes[] = { "libasan.so", "libtsan.so",
						"libhwasan.so", "liblsan.so",
						"libclang_rt." };

	for (size_t i = 0; i < MT_ARRAY_SIZE(runtimes); i++) {
		if (strncmp(name, runtimes[i], strlen(runtimes[i])) == 0)
			return true;
	}
	return false;
}

/* Where in the file is what will be at address @vaddr? */
static uint64_t file_offset(const Elf64_Phdr *ph, int n, uint64_t vaddr)
{
	for (int i = 0; i < n; i++) {
		if (ph[i].p_type == PT_LOAD && vaddr >= ph[i].p_vaddr &&
		    vaddr - ph[i].p_vaddr < ph[i].p_filesz)
			return vaddr - ph[i].p_vaddr + ph[i].p_offset;
	}
	return 0;
}

static bool needs_sanitizer(int fd, const Elf64_Phdr *ph, int n,
			    const Elf64_Phdr *dynamic)
{
	uint64_t strings = 0;
	Elf64_Dyn dyn[64];
	char name[24];
	ssize_t len;
	int count;

	len = read_at(fd, dyn, sizeof(dyn), dynamic->p_offset);
	if (len <= 0)
		return false;
	count = (int)MT_MIN((size_t)len, (size_t)dynamic->p_filesz) /
		(int)sizeof(dyn[0]);
	for (int i = 0; i < count; i++) {
		if (dyn[i].d_tag == DT_STRTAB)
			strings = file_offset(ph, n, dyn[i].d_un.d_ptr);
	}
	for (int i = 0; strings && i < count && dyn[i].d_tag != DT_NULL; i++) {
		if (dyn[i].d_tag != DT_NEEDED)
			continue;
		len = read_at(fd, name, sizeof(name) - 1,
			      strings + dyn[i].d_un.d_val);
		if (len <= 0)
			return false;
		name[len] = '\0';
		if (is_runtime_that_must_be_first(name))
			return true;
	}
	return false;
}

static enum mt_target look_at_elf(int fd, const Elf64_Ehdr *eh)
{
	const Elf64_Phdr *dynamic = NULL;
	Elf64_Phdr ph[16];
	bool dynamic_loader = false;
	char interp[64];
	ssize_t len;
	int n = MT_MIN((int)eh->e_phnum, 16);

	if (eh->e_ident[EI_CLASS] != ELFCLASS64 || eh->e_machine != OUR_MACHINE)
		return MT_TARGET_MACHINE;
	if (eh->e_phentsize != sizeof(ph[0]))
		return MT_TARGET_OK;
	len = read_at(fd, ph, (size_t)n * sizeof(ph[0]), eh->e_phoff);
	if (len < (ssize_t)((size_t)n * sizeof(ph[0])))
		return MT_TARGET_OK;
	for (int i = 0; i < n; i++) {
		if (ph[i].p_type == PT_DYNAMIC)
			dynamic = &ph[i];
		if (ph[i].p_type != PT_INTERP)
			continue;
		len = read_at(fd, interp, sizeof(interp) - 1, ph[i].p_offset);
		interp[MT_MAX(len, 0)] = '\0';
		dynamic_loader = true;
		if (strstr(interp, "ld-musl"))
			return MT_TARGET_MUSL;
	}
	if (!dynamic_loader)
		return MT_TARGET_STATIC;
	return dynamic && needs_sanitizer(fd, ph, n, dynamic)
		       ? MT_TARGET_SANITIZER
		       : MT_TARGET_OK;
}

/* The interpreter a script names; false if there is none. */
static bool script_interpreter(const char *text, size_t len, char *path,
			       size_t size)
{
	size_t at = 2;
	size_t n = 0;

	while (at < len && (text[at] == ' ' || text[at] == '\t'))
		at++;
	while (at < len && n < size - 1 && text[at] > ' ')
		path[n++] = text[at++];
	path[n] = '\0';
	return n > 0 && at < len;
}

/* Would the kernel give it other rights than we have? */
static bool gains_rights(int fd)
{
	struct stat st;

	if (mt_syscall4(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH))
		return false;
	if ((st.st_mode & S_ISUID) &&
	    st.st_uid != (uint32_t)mt_syscall0(SYS_geteuid))
		return true;
	if ((st.st_mode & S_ISGID) && (st.st_mode & S_IXGRP) &&
	    st.st_gid != (uint32_t)mt_syscall0(SYS_getegid))
		return true;
	return mt_syscall0(SYS_geteuid) != 0 &&
	       mt_syscall4(SYS_fgetxattr, fd, "security.capability", NULL, 0) >
		       0;
}

/* Returns false for a script, whose interpreter is now in @path. */
static bool judge(int fd, char *path, size_t size, enum mt_target *ret)
{
	union {
		Elf64_Ehdr eh;
		char text[256];
	} head;
	ssize_t len = read_at(fd, &head, sizeof(head), 0);

	*ret = MT_TARGET_OK;
	if (len < 4)
		return true;
	if (head.text[0] == '#' && head.text[1] == '!')
		return !script_interpreter(head.text, (size_t)len, path, size);
	if (len < (ssize_t)sizeof(head.eh) ||
	    memcmp(head.text, ELFMAG, SELFMAG) != 0)
		return true;
	*ret = look_at_elf(fd, &head.eh);
	if (*ret == MT_TARGET_OK && gains_rights(fd))
		*ret = MT_TARGET_SETUID;
	return true;
}

static enum mt_target follow(int fd, bool close_it)
{
	enum mt_target target;
	char path[256];
	bool done = judge(fd, path, sizeof(path), &target);

	if (close_it)
		mt_sys_close(fd);
	for (int i = 0; !done && i < SCRIPT_DEPTH; i++) {
		fd = mt_sys_open(path, O_RDONLY | O_CLOEXEC, 0);
		if (fd < 0)
			return MT_TARGET_OK;
		done = judge(fd, path, sizeof(path), &target);
		mt_sys_close(fd);
	}
	return target;
}

enum mt_target mt_target_look(const char *path)
{
	int fd = mt_sys_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);

	return fd >= 0 ? follow(fd, true) : MT_TARGET_OK;
}

enum mt_target mt_target_look_fd(int fd)
{
	return follow(fd, false);
}
