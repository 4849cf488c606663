/* SPDX-License-Identifier: MIT */
/*
 * cmd_doctor.c - memtally doctor: will it work here, and with this program?
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/reader.h"
#include "core/segment.h"
#include "core/target.h"
#include "tools/cmd.h"
#include "tools/format.h"
#include "tools/library.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

static const char help[] =
	"Examples:\n"
	"  memtally doctor                  this machine, container and shell\n"
	"  memtally doctor ./server         and a program\n"
	"\n"
	"Usage: memtally doctor [CMD]\n"
	"\n"
	"One line for each thing looked at: ok, note (works, and differs), or "
	"FAIL.\n"
	"Exit status 1 if anything fails.\n";

/* What a session takes at its ceiling, and what each process adds. */
#define SEGMENT_BYTES (INT64_C(4) << 20)

static int failures;

enum verdict { OK, NOTE, FAIL };

__attribute__((format(printf, 3, 4))) static void say(enum verdict verdict,
						      const char *what,
						      const char *format, ...)
{
	static const char *const words[] = { "ok", "note", "FAIL" };
	char line[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	mt_reader_clean(line, sizeof(line));
	printf("%-4s  %s: %s\n", words[verdict], what, line);
	failures += verdict == FAIL;
}

static bool read_line(const char *path, char *text, size_t size)
{
	FILE *file = fopen(path, "re");
	bool ok = file && fgets(text, (int)size, file);

	if (file)
		fclose(file);
	if (ok)
		text[strcspn(text, "\n")] = '\0';
	return ok;
}

/* ---- the place ---- */

static void look_at_place(char *dir)
{
	struct statvfs fs;
	char room[16];
	int64_t free_bytes;
	int ret;

	ret = mt_place_dir(dir, getenv("XDG_RUNTIME_DIR"), true);
	if (ret) {
		say(FAIL, "sessions", "no directory for them: %s",
		    segment_error(ret));
		dir[0] = '\0';
		return;
	}
	if (statvfs(dir, &fs)) {
		say(FAIL, "sessions", "%s: %s", dir, strerror(errno));
		return;
	}
	free_bytes = (int64_t)(fs.f_bavail * fs.f_frsize);
	format_bytes(free_bytes, room);
	if (free_bytes < SEGMENT_BYTES)
		say(NOTE, "sessions",
		    "%s has only %s free; a session takes up to 4M", dir, room);
	else
		say(OK, "sessions", "%s, %s free", dir, room);
}

static void look_at_library(const char *dir)
{
	char path[MT_PATH_MAX];

	if (library_find(dir, path))
		say(FAIL, "library", "see above");
	else
		say(OK, "library", "%s", path);
}

/* Really: a program in a session of its own, that must have been counted. */
static void try_it(const char *dir)
{
	char file[] = "/tmp/memtally-doctor.XXXXXX";
	char name[64];
	char summary[64];
	char text[65536];
	const char *at;
	int status = -1;
	ssize_t n = 0;
	pid_t child;
	int fd = mkstemp(file);

	if (fd < 0) {
		say(NOTE, "a trial", "%s: %s", file, strerror(errno));
		return;
	}
	snprintf(name, sizeof(name), "doctor-%d", (int)getpid());
	snprintf(summary, sizeof(summary), "json:%s", file);
	fflush(stdout);
	child = fork();
	if (child == 0) {
		execl("/proc/self/exe", "memtally", "run", "-n", name, "-s",
		      summary, "--", "/bin/sh", "-c", "exit 7", (char *)NULL);
		_exit(125);
	}
	if (child > 0)
		waitpid(child, &status, 0);
	n = pread(fd, text, sizeof(text) - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	at = strstr(text, "\"processes_total\":");
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 7)
		say(FAIL, "a trial", "run /bin/sh: status %d",
		    WIFEXITED(status) ? WEXITSTATUS(status) : -1);
	else if (!at ||
		 strtol(at + strlen("\"processes_total\":"), NULL, 10) < 1)
		say(FAIL, "a trial", "/bin/sh ran, and was not counted");
	else
		say(OK, "a trial", "/bin/sh ran, and was counted");
	close(fd);
	unlink(file);
	snprintf(text, sizeof(text), "%s/%s", dir, name);
	unlink(text);
}

/* ---- the machine ---- */

static void look_at_kernel(void)
{
	struct utsname uts;
	char text[256];
	void *page;
	int fd;

	if (!uname(&uts))
		say(OK, "kernel", "%s", uts.release);
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED || madvise(page, 4096, MADV_WIPEONFORK))
		say(FAIL, "MADV_WIPEONFORK", "%s: needs Linux 4.14",
		    strerror(errno));
	if (page != MAP_FAILED)
		munmap(page, 4096);
	fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	if (fd < 0)
		say(NOTE, "pidfd_open",
		    "%s: the dead are noticed a little later, and the kill "
		    "policies don't work",
		    strerror(errno));
	else
		close(fd);
	if (read_line("/sys/kernel/mm/transparent_hugepage/enabled", text,
		      sizeof(text)) &&
	    strstr(text, "[always]"))
		say(NOTE, "huge pages",
		    "\"always\": the heap is charged in steps of 2M");
	if (read_line("/proc/sys/vm/overcommit_memory", text, sizeof(text)) &&
	    text[0] == '2')
		say(NOTE, "overcommit", "mode 2 is untested");
	if (access("/proc/self/maps", R_OK))
		say(NOTE, "/proc",
		    "not there: pids of other namespaces can't be told apart");
}

static void look_at_limits(void)
{
	static const struct {
		int what;
		const char *name;
		uint64_t least;
		const char *why;
	} all[] = {
		{ RLIMIT_DATA, "ulimit -d", 20480 << 10,
		  "programs may not start" },
		{ RLIMIT_STACK, "ulimit -s", 20 << 10,
		  "programs may not start" },
		{ RLIMIT_AS, "ulimit -v", UINT64_C(256) << 20,
		  "little address space is left for programs" },
		{ RLIMIT_FSIZE, "ulimit -f", 4 << 20,
		  "a session's file can't be made" },
	};
	char text[32];
	int64_t bytes;

	for (size_t i = 0; i < MT_ARRAY_SIZE(all); i++) {
		struct rlimit limit;

		if (!getrlimit((__rlimit_resource_t)all[i].what, &limit) &&
		    limit.rlim_cur < all[i].least)
			say(all[i].what == RLIMIT_AS ? NOTE : FAIL, all[i].name,
			    "too low: %s", all[i].why);
	}
	if (!parse_size("100%", &bytes))
		say(OK, "memory", "%s to be had here",
		    format_bytes(bytes, text));
}

static void look_at_environment(void)
{
	const char *preload = getenv("LD_PRELOAD");
	void *library;

	if (preload && *preload && !strstr(preload, "libmemtally"))
		say(NOTE, "LD_PRELOAD", "%s comes after memtally", preload);
	if (getenv("LD_AUDIT") && !getenv("GLIBC_TUNABLES"))
		say(FAIL, "LD_AUDIT",
		    "needs GLIBC_TUNABLES="
		    "glibc.rtld.optional_static_tls=4096");
	if (getenv("MALLOC_CONF"))
		say(NOTE, "MALLOC_CONF", "doesn't reach memtally's heap");
	if (getenv("MEMTALLY_DISABLE"))
		say(NOTE, "MEMTALLY_DISABLE", "set: nothing is counted");
	library = dlopen("libunwind.so.8", RTLD_LAZY);
	if (library)
		dlclose(library);
	else
		say(NOTE, "libunwind",
		    "not installed (libunwind8): refusals have no call stack");
}

/* ---- a program ---- */

static bool find_command(const char *command, char *path, size_t size)
{
	const char *dirs = getenv("PATH");

	if (strchr(command, '/')) {
		snprintf(path, size, "%s", command);
		return access(path, F_OK) == 0;
	}
	while (dirs && *dirs) {
		size_t len = strcspn(dirs, ":");

		snprintf(path, size, "%.*s/%s", (int)len, dirs, command);
		if (access(path, X_OK) == 0)
			return true;
		dirs += len + !!dirs[len];
	}
	return false;
}

/* What a program's own symbols and libraries say. */
static void look_inside(const char *path)
{
	bool allocator = false;
	bool go = false;
	Elf_Scn *section = NULL;
	size_t names;
	Elf *elf;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!elf || elf_kind(elf) != ELF_K_ELF ||
	    elf_getshdrstrndx(elf, &names)) {
		elf_end(elf);
		close(fd);
		return;
	}
	while ((section = elf_nextscn(elf, section))) {
		Elf_Data *data;
		GElf_Shdr header;
		const char *name;

		if (!gelf_getshdr(section, &header))
			continue;
		name = elf_strptr(elf, names, header.sh_name);
		go |= name && !strcmp(name, ".note.go.buildid");
		if (header.sh_type != SHT_DYNSYM || !header.sh_entsize)
			continue;
		data = elf_getdata(section, NULL);
		for (size_t i = 0;
		     data && i < header.sh_size / header.sh_entsize; i++) {
			GElf_Sym symbol;

			if (!gelf_getsym(data, (int)i, &symbol) ||
			    symbol.st_shndx == SHN_UNDEF)
				continue;
			name = elf_strptr(elf, header.sh_link, symbol.st_name);
			allocator |= name && !strcmp(name, "malloc");
		}
	}
	if (allocator)
		say(NOTE, path,
		    "has a malloc of its own, which is passed over: its calls "
		    "come to memtally's heap");
	if (go)
		say(NOTE, path,
		    "is of Go, whose heap calls the kernel itself: not seen");
	elf_end(elf);
	close(fd);
}

static void look_at_command(const char *command)
{
	static const struct {
		enum verdict verdict;
		const char *why;
	} all[] = {
		[MT_TARGET_OK] = { OK, "will be counted" },
		[MT_TARGET_STATIC] = { FAIL, "statically linked: not covered" },
		[MT_TARGET_SETUID] = { FAIL, "set-user-ID or privileged: not "
					     "covered" },
		[MT_TARGET_MACHINE] = { FAIL,
					"of another machine: not covered" },
		[MT_TARGET_MUSL] = { FAIL, "linked with musl: not covered" },
		[MT_TARGET_SANITIZER] = { FAIL, "built with a sanitizer: not "
						"covered" },
	};
	enum mt_target target;
	char path[4096];

	if (!find_command(command, path, sizeof(path))) {
		say(FAIL, command, "command not found");
		return;
	}
	if (access(path, X_OK)) {
		say(FAIL, path, "%s", strerror(errno));
		return;
	}
	target = mt_target_look(path);
	say(all[target].verdict, path, "%s", all[target].why);
	if (target == MT_TARGET_OK)
		look_inside(path);
}

int cmd_doctor(int argc, char **argv)
{
	static const struct option options[] = { { "help", 0, NULL, 'h' },
						 { NULL, 0, NULL, 0 } };
	char dir[MT_PATH_MAX] = "";
	int opt;

	while ((opt = getopt_long(argc, argv, "+h", options, NULL)) != -1) {
		if (opt != 'h')
			return CMD_USAGE;
		fputs(help, stdout);
		return flush_output() ? CMD_OK : CMD_FAILED;
	}
	look_at_place(dir);
	look_at_library(dir);
	look_at_kernel();
	look_at_limits();
	look_at_environment();
	if (dir[0])
		try_it(dir);
	if (optind < argc)
		look_at_command(argv[optind]);
	return flush_output() && !failures ? CMD_OK : CMD_FAILED;
}
