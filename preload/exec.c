/* SPDX-License-Identifier: MIT */
/*
 * exec.c - the session goes on in the next program.
 *
 * The environment a program gives to exec is passed on as it is, in order,
 * when it still has our entry in LD_PRELOAD and MEMTALLY_SESSION.  What it
 * dropped is put back at the end; where the target can't bear the library, our
 * entry is left out of LD_PRELOAD.  All of it on the stack: the caller may be
 * a vfork child, whose every store its parent will find.
 */
#include "preload/exec.h"

#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <spawn.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base.h"
#include "core/sys.h"
#include "core/target.h"
#include "preload/account.h"
#include "preload/init.h"

typedef int execve_fn(const char *, char *const[], char *const[]);
typedef int fexecve_fn(int, char *const[], char *const[]);
typedef int execveat_fn(int, const char *, char *const[], char *const[], int);
typedef int spawn_fn(pid_t *, const char *, const posix_spawn_file_actions_t *,
		     const posix_spawnattr_t *, char *const[], char *const[]);

static execve_fn *real_execve;
static execve_fn *real_execvpe;
static fexecve_fn *real_fexecve;
static execveat_fn *real_execveat;
static spawn_fn *real_spawn;
static spawn_fn *real_spawnp;

void mt_exec_resolve(void)
{
	real_execve = (execve_fn *)dlsym(RTLD_NEXT, "execve");
	real_execvpe = (execve_fn *)dlsym(RTLD_NEXT, "execvpe");
	real_fexecve = (fexecve_fn *)dlsym(RTLD_NEXT, "fexecve");
	real_execveat = (execveat_fn *)dlsym(RTLD_NEXT, "execveat");
	real_spawn = (spawn_fn *)dlsym(RTLD_NEXT, "posix_spawn");
	real_spawnp = (spawn_fn *)dlsym(RTLD_NEXT, "posix_spawnp");
}

/* What has to be done to an environment. */
struct plan {
	size_t count;     /* entries given */
	size_t preload;   /* index of LD_PRELOAD, or count */
	size_t text_size; /* bytes for a new LD_PRELOAD entry; 0: none */
	bool put_back;    /* our entry into LD_PRELOAD */
	bool leave_out;   /* our entry out of LD_PRELOAD */
	bool add_session;
	bool add_group;
};

static const char group_name[] = "MEMTALLY_GROUP=";
static const char session_name[] = "MEMTALLY_SESSION=";
static const char preload_name[] = "LD_PRELOAD=";

static bool starts_with(const char *text, const char *start)
{
	return strncmp(text, start, strlen(start)) == 0;
}

/* Find @entry in a list separated by colons and spaces. */
static const char *find_in_list(const char *list, const char *entry)
{
	size_t want = strlen(entry);

	while (*list) {
		size_t len = strcspn(list, ": ");

		if (len == want && memcmp(list, entry, len) == 0)
			return list;
		list += len;
		list += strspn(list, ": ");
	}
	return NULL;
}

/* What starts: in place of this process, or as a child? */
struct start {
	enum mt_target target;
	bool spawned;
};

/* Without following, the first process is counted all the same, whatever it
 * becomes. */
static bool is_followed(const struct start *start)
{
	return mt_init_follow() || (!start->spawned && mt_account_is_first());
}

/* Returns false when the environment is right as it is. */
static bool make_plan(char *const *envp, const struct start *start,
		      struct plan *plan)
{
	bool objects = mt_target_objects(start->target);
	bool follow = is_followed(start);
	const char *library = mt_init_library();
	const char *found = NULL;
	bool has_session = false;
	bool has_group = false;

	memset(plan, 0, sizeof(*plan));
	if (!library || !mt_init_session_entry() || !mt_account_session())
		return false;
	plan->preload = SIZE_MAX;
	for (; envp && envp[plan->count]; plan->count++) {
		const char *e = envp[plan->count];

		if (starts_with(e, preload_name) && plan->preload == SIZE_MAX) {
			plan->preload = plan->count;
			found = find_in_list(e + sizeof(preload_name) - 1,
					     library);
		}
		has_session |= starts_with(e, session_name);
		has_group |= starts_with(e, group_name);
	}
	if (plan->preload == SIZE_MAX)
		plan->preload = plan->count;
	plan->leave_out = found && (objects || !follow);
	plan->put_back = !found && !objects && follow;
	plan->add_session = !has_session && follow;
	plan->add_group = !has_group && follow && mt_init_group_entry();
	if (plan->put_back || plan->leave_out) {
		plan->text_size = sizeof(preload_name) + strlen(library) + 2;
		if (plan->preload < plan->count)
			plan->text_size += strlen(envp[plan->preload]);
	}
	return plan->text_size || plan->add_session || plan->add_group;
}

static void write_preload(const struct plan *plan, const char *old, char *to)
{
	const char *library = mt_init_library();
	size_t len = strlen(library);
	const char *list = old ? old + sizeof(preload_name) - 1 : "";

	memcpy(to, preload_name, sizeof(preload_name));
	to += sizeof(preload_name) - 1;
	if (plan->leave_out) {
		const char *ours = find_in_list(list, library);
		const char *rest = ours + len;

		/* With the separator behind it, or else the one before. */
		if (*rest)
			rest++;
		memcpy(to, list, (size_t)(ours - list));
		to += ours - list;
		memcpy(to, rest, strlen(rest) + 1);
		if (!*rest && ours > list)
			to[-1] = '\0';
		return;
	}
	memcpy(to, library, len + 1);
	to += len;
	if (*list) {
		*to++ = ':';
		memcpy(to, list, strlen(list) + 1);
	}
}

/* @out: room for count + 4 pointers.  @text: text_size bytes. */
static char *const *apply_plan(const struct plan *plan, char *const *envp,
			       char **out, char *text)
{
	size_t n = 0;

	for (size_t i = 0; i < plan->count; i++) {
		if (i != plan->preload || !plan->text_size) {
			out[n++] = envp[i];
			continue;
		}
		write_preload(plan, envp[i], text);
		if (text[sizeof(preload_name) - 1])
			out[n++] = text;
	}
	if (plan->put_back && plan->preload == plan->count) {
		write_preload(plan, NULL, text);
		out[n++] = text;
	}
	if (plan->add_session)
		out[n++] = (char *)(uintptr_t)mt_init_session_entry();
	if (plan->add_group)
		out[n++] = (char *)(uintptr_t)mt_init_group_entry();
	out[n] = NULL;
	return out;
}

/* The environment to use instead of @envp; lives in the caller's frame. */
#define WITH_SESSION(envp, start)                                              \
	({                                                                     \
		struct plan plan_;                                             \
		char *const *env_ = (envp);                                    \
                                                                               \
		if (make_plan(env_, (start), &plan_))                          \
			env_ = apply_plan(                                     \
				&plan_, env_,                                  \
				alloca((plan_.count + 4) * sizeof(char *)),    \
				alloca(plan_.text_size + 1));                  \
		env_;                                                          \
	})

static int fail(int error)
{
	errno = error;
	return -1;
}

/* Before an exec, and after it failed: the pages of a program that can't join
 * have to be taken back by somebody else. */
static void leave(const struct start *start, const char *path)
{
	const char *slash = strrchr(path, '/');

	if (start->target != MT_TARGET_OK)
		mt_account_leaving(slash ? slash + 1 : path);
}

static int stay(const struct start *start, int ret)
{
	int error = errno;

	if (start->target != MT_TARGET_OK)
		mt_account_leaving(NULL);
	errno = error;
	return ret;
}

/* Look a command up as execvp does, only to look at it. */
static enum mt_target look_up(const char *file)
{
	const char *path = mt_env_get("PATH");
	char full[1024];
	size_t len = strlen(file);

	if (strchr(file, '/'))
		return mt_target_look(file);
	if (!path)
		path = "/bin:/usr/bin";
	while (*path) {
		size_t n = strcspn(path, ":");

		if (n > 0 && n + len + 2 <= sizeof(full)) {
			memcpy(full, path, n);
			full[n] = '/';
			memcpy(full + n + 1, file, len + 1);
			if (mt_syscall3(SYS_faccessat, AT_FDCWD, full, X_OK) ==
			    0)
				return mt_target_look(full);
		}
		path += n + (path[n] == ':');
	}
	return MT_TARGET_OK;
}

MT_EXPORT int execve(const char *path, char *const argv[], char *const envp[])
{
	struct start start = { mt_target_look(path), false };
	char *const *env = WITH_SESSION(envp, &start);

	leave(&start, path);
	if (real_execve)
		return stay(&start, real_execve(path, argv, env));
	return stay(&start,
		    fail((int)-mt_syscall3(SYS_execve, path, argv, env)));
}

MT_EXPORT int execv(const char *path, char *const argv[])
{
	return execve(path, argv, environ);
}

MT_EXPORT int execvpe(const char *file, char *const argv[], char *const envp[])
{
	struct start start = { look_up(file), false };
	char *const *env = WITH_SESSION(envp, &start);

	if (!real_execvpe)
		return fail(ENOSYS);
	leave(&start, file);
	return stay(&start, real_execvpe(file, argv, env));
}

MT_EXPORT int execvp(const char *file, char *const argv[])
{
	return execvpe(file, argv, environ);
}

MT_EXPORT int fexecve(int fd, char *const argv[], char *const envp[])
{
	struct start start = { mt_target_look_fd(fd), false };
	char *const *env = WITH_SESSION(envp, &start);

	return real_fexecve ? real_fexecve(fd, argv, env) : fail(ENOSYS);
}

MT_EXPORT int execveat(int dir, const char *path, char *const argv[],
		       char *const envp[], int flags)
{
	int fd = *path ? (int)mt_syscall4(SYS_openat, dir, path,
					  O_RDONLY | O_CLOEXEC, 0)
		       : dir;
	struct start start = { MT_TARGET_OK, false };
	char *const *env;

	if (fd >= 0)
		start.target = mt_target_look_fd(fd);
	env = WITH_SESSION(envp, &start);
	if (*path && fd >= 0)
		mt_sys_close(fd);
	if (*path)
		leave(&start, path);
	if (real_execveat)
		return stay(&start, real_execveat(dir, path, argv, env, flags));
	return stay(&start,
		    fail((int)-mt_syscall6(SYS_execveat, dir, (long)path,
					   (long)argv, (long)env, flags, 0)));
}

MT_EXPORT int posix_spawn(pid_t *restrict pid, const char *restrict path,
			  const posix_spawn_file_actions_t *actions,
			  const posix_spawnattr_t *restrict attr,
			  char *const argv[restrict],
			  char *const envp[restrict])
{
	struct start start = { mt_target_look(path), true };
	char *const *env = WITH_SESSION(envp, &start);

	if (!real_spawn)
		return ENOSYS;
	return real_spawn(pid, path, actions, attr, argv, env);
}

MT_EXPORT int posix_spawnp(pid_t *restrict pid, const char *restrict file,
			   const posix_spawn_file_actions_t *actions,
			   const posix_spawnattr_t *restrict attr,
			   char *const argv[restrict],
			   char *const envp[restrict])
{
	struct start start = { look_up(file), true };
	char *const *env = WITH_SESSION(envp, &start);

	if (!real_spawnp)
		return ENOSYS;
	return real_spawnp(pid, file, actions, attr, argv, env);
}

static size_t count_args(va_list ap)
{
	size_t n = 1;

	while (va_arg(ap, char *))
		n++;
	return n;
}

/* The arguments from @arg on, as an array in the caller's frame; then @ap
 * stands behind the NULL.  libc declares @arg nonnull, callers don't all
 * keep to it: the empty asm makes the compiler forget. */
#define ARGS_ARRAY(ap, arg)                                                    \
	({                                                                     \
		va_list count_;                                                \
		char **argv_;                                                  \
		const char *first_ = (arg);                                    \
		size_t n_;                                                     \
                                                                               \
		__asm__("" : "+r"(first_));                                    \
                                                                               \
		va_copy(count_, ap);                                           \
		n_ = first_ ? count_args(count_) : 0;                          \
		va_end(count_);                                                \
		argv_ = alloca((n_ + 1) * sizeof(char *));                     \
		argv_[0] = (char *)(uintptr_t)(arg);                           \
		for (size_t i_ = 1; i_ <= n_; i_++)                            \
			argv_[i_] = va_arg(ap, char *);                        \
		argv_;                                                         \
	})

MT_EXPORT int execl(const char *path, const char *arg, ...)
{
	char **argv;
	va_list ap;

	va_start(ap, arg);
	argv = ARGS_ARRAY(ap, arg);
	va_end(ap);
	return execve(path, argv, environ);
}

MT_EXPORT int execlp(const char *file, const char *arg, ...)
{
	char **argv;
	va_list ap;

	va_start(ap, arg);
	argv = ARGS_ARRAY(ap, arg);
	va_end(ap);
	return execvpe(file, argv, environ);
}

MT_EXPORT int execle(const char *path, const char *arg, ...)
{
	char *const *envp;
	char **argv;
	va_list ap;

	va_start(ap, arg);
	argv = ARGS_ARRAY(ap, arg);
	envp = va_arg(ap, char *const *);
	va_end(ap);
	return execve(path, argv, envp);
}
