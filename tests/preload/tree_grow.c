/* SPDX-License-Identifier: MIT */
/*
 * A tree of processes, written as a command line: each argument is a step, and
 * a step that starts a process leaves the rest to it, waits, and ends as it
 * did.  For instance: 5 MiB, and 7 more in a child, until a file is there:
 *
 *   tree_grow hold 5 fork hold 7 say /tmp/ready wait /tmp/stop
 *
 * The scripts tests/tools/tree_*.sh use it; tree_grow.sh tests every way to
 * start a process.
 */
#include <grp.h>
#include <limits.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "tests/preload/count.h"

#define MIB  ((size_t)1 << 20)
#define MOST 4096

static char *self;
static char **todo; /* the steps left */
static char *held[MOST];
static int nr_held;
static pid_t reader;

static char *word(void)
{
	if (!*todo)
		fail("a step lacks an argument");
	return *todo++;
}

static int number(void)
{
	return (int)strtol(word(), NULL, 10);
}

/* Memory. */

static bool hold_one(void)
{
	char *p = nr_held < MOST ? malloc(MIB) : NULL;

	if (!p)
		return false;
	memset(p, 1, MIB);
	held[nr_held++] = p;
	return true;
}

static void hold(void)
{
	for (int n = number(); n > 0; n--)
		must(hold_one());
}

/* Up to the limit. */
static void hog(void)
{
	while (hold_one())
		;
	must(errno == ENOMEM);
}

static void drop(void)
{
	while (nr_held)
		free(held[--nr_held]);
	malloc_trim(0);
}

static void map(void)
{
	size_t size = (size_t)number() * MIB;
	char *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(p != MAP_FAILED);
	memset(p, 1, size);
}

/* SIZE TIMES: a work load beside what is held. */
static void cycle(void)
{
	int first = nr_held;
	int size = number();

	for (int n = number(); n > 0; n--) {
		for (int i = 0; i < size; i++)
			must(hold_one());
		while (nr_held > first)
			free(held[--nr_held]);
	}
	malloc_trim(0);
}

/* A child that copies out all that is held, while its parent goes on. */
static void snapshot(void)
{
	char *buffer;

	reader = fork();
	must(reader >= 0);
	if (reader)
		return;
	must(buffer = malloc(MIB));
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < nr_held; i++) {
			memcpy(buffer, held[i], MIB);
			must(buffer[0] == 1 && buffer[MIB - 1] == 1);
		}
	}
	_exit(0);
}

static void rewrite(void)
{
	for (int i = 0; i < nr_held; i++)
		memset(held[i], 2, MIB);
	expect_clean_exit(reader);
}

/* Words with whoever watches. */

/* Pid and MiB held, in a file that is there only when it is whole.  A '%' at
 * the end of its name becomes the pid. */
static void say(void)
{
	char *end = NULL;
	char path[PATH_MAX];
	char half[PATH_MAX + 8];
	int fd;

	snprintf(path, sizeof(path) - 16, "%s", word());
	end = path + strlen(path) - 1;
	if (*end == '%')
		sprintf(end, "%d", (int)getpid());
	snprintf(half, sizeof(half), "%s.half", path);
	fd = open(half, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	must(fd >= 0);
	dprintf(fd, "%d %d\n", (int)getpid(), nr_held);
	close(fd);
	must(rename(half, path) == 0);
}

static void wait_for(void)
{
	const struct timespec pause = { 0, 10000000 };
	char *path = word();

	alarm(100);
	while (access(path, F_OK))
		nanosleep(&pause, NULL);
}

/* New processes. */

static void end_as(pid_t pid)
{
	int status;

	must(pid > 0 && waitpid(pid, &status, 0) == pid);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static void end_as_status(int status)
{
	must(status >= 0);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static void go_on_in(pid_t pid)
{
	if (pid)
		end_as(pid);
}

/* N children at once, each with all steps left. */
static void crowd(void)
{
	int bad = 0;
	int status;

	for (int n = number(); n > 0; n--) {
		pid_t pid = fork();

		must(pid >= 0);
		if (!pid)
			return;
	}
	while (wait(&status) > 0)
		bad |= status;
	_exit(bad ? 1 : 0);
}

static void run_steps(void);

static int run_in_clone(void *arg)
{
	(void)arg;
	run_steps();
	_exit(0);
}

static void clone_with(int flags)
{
	static char stack[256 << 10];

	end_as(clone(run_in_clone, stack + sizeof(stack), flags | SIGCHLD,
		     NULL));
}

static void step_fork(void)
{
	go_on_in(fork());
}

static void step_bare_fork(void)
{
	go_on_in(_Fork());
}

static void step_clone(void)
{
	clone_with(0);
}

static void step_clone_vm(void)
{
	clone_with(CLONE_VM);
}

static void step_raw_clone(void)
{
	go_on_in((pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
}

static void step_raw_fork(void)
{
#ifdef SYS_fork
	go_on_in((pid_t)syscall(SYS_fork));
#else
	step_raw_clone();
#endif
}

/* argv for the steps left, self first. */
static char **rest(void)
{
	*--todo = self;
	return todo;
}

static void step_vfork(void)
{
	char **argv = rest();
	pid_t pid = vfork();

	if (pid == 0) {
		execv(self, argv);
		_exit(127);
	}
	end_as(pid);
}

static void spawn_with(char **env)
{
	pid_t pid;

	must(posix_spawn(&pid, self, NULL, NULL, rest(), env) == 0);
	end_as(pid);
}

static void step_spawn(void)
{
	spawn_with(environ);
}

static void step_spawn_empty(void)
{
	char *none[] = { NULL };

	spawn_with(none);
}

/* The steps left in one argument, which main() takes apart again. */
static char *line(void)
{
	static char text[32768];
	size_t n = 0;

	for (; *todo; todo++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s",
				      n ? " " : "", *todo);
	must(n < sizeof(text));
	return text;
}

static char *shell_line(void)
{
	static char text[65536];

	snprintf(text, sizeof(text), "'%s' %s", self, line());
	return text;
}

static void step_system(void)
{
	end_as_status(system(shell_line()));
}

static void step_popen(void)
{
	FILE *f = popen(shell_line(), "r");

	must(f);
	end_as_status(pclose(f));
}

/* The same process, another program. */

static void step_exec(void)
{
	execv(self, rest());
	fail("exec: %s", strerror(errno));
}

static void step_exec_empty(void)
{
	char *none[] = { NULL };

	execve(self, rest(), none);
	fail("exec: %s", strerror(errno));
}

static void step_execle(void)
{
	char *one[] = { "ONE=1", NULL };

	execle(self, self, line(), (char *)NULL, one);
	fail("exec: %s", strerror(errno));
}

/* Another program, to which the rest are arguments. */
static void step_exec_by(void)
{
	execvp(*todo, todo);
	fail("exec: %s", strerror(errno));
}

/* An exec that is expected to fail. */
static void step_try_exec(void)
{
	char *path = word();
	char *argv[] = { path, NULL };

	execv(path, argv);
	must(errno == EACCES);
}

static void step_env(void)
{
	char *name = word();

	must(setenv(name, word(), 1) == 0);
}

/* What daemons do. */

static void step_daemon(void)
{
	pid_t pid = fork();

	must(pid >= 0);
	if (pid) {
		expect_clean_exit(pid);
		_exit(0);
	}
	must(setsid() > 0);
	pid = fork();
	must(pid >= 0);
	if (pid)
		_exit(0);
	must(chdir("/") == 0);
	umask(0);
}

static void close_all(void)
{
	for (int fd = 0; fd <= 1024; fd++)
		close(fd);
}

static void step_chroot(void)
{
	must(chroot(word()) == 0 && chdir("/") == 0);
}

static void step_setuid(void)
{
	uid_t uid = (uid_t)number();

	must(setgroups(0, NULL) == 0);
	must(setresuid(uid, uid, uid) == 0);
}

static void step_newpid(void)
{
	must(unshare(CLONE_NEWPID) == 0);
}

static void step_status(void)
{
	_exit(number());
}

static const struct {
	const char *name;
	void (*run)(void);
} steps[] = {
	{ "hold", hold },
	{ "hog", hog },
	{ "drop", drop },
	{ "map", map },
	{ "cycle", cycle },
	{ "snapshot", snapshot },
	{ "rewrite", rewrite },
	{ "say", say },
	{ "wait", wait_for },
	{ "crowd", crowd },
	{ "fork", step_fork },
	{ "_Fork", step_bare_fork },
	{ "clone", step_clone },
	{ "clone_vm", step_clone_vm },
	{ "raw_clone", step_raw_clone },
	{ "raw_fork", step_raw_fork },
	{ "vfork", step_vfork },
	{ "spawn", step_spawn },
	{ "spawn_empty", step_spawn_empty },
	{ "system", step_system },
	{ "popen", step_popen },
	{ "exec", step_exec },
	{ "exec_empty", step_exec_empty },
	{ "execle", step_execle },
	{ "exec_by", step_exec_by },
	{ "try_exec", step_try_exec },
	{ "env", step_env },
	{ "daemon", step_daemon },
	{ "close_all", close_all },
	{ "chroot", step_chroot },
	{ "setuid", step_setuid },
	{ "newpid", step_newpid },
	{ "status", step_status },
};

static void run_steps(void)
{
	while (*todo) {
		char *name = word();
		size_t i = 0;

		while (i < sizeof(steps) / sizeof(steps[0]) &&
		       strcmp(steps[i].name, name) != 0)
			i++;
		if (i == sizeof(steps) / sizeof(steps[0]))
			fail("%s: no such step", name);
		steps[i].run();
	}
}

int main(int argc, char **argv)
{
	static char *words[1024] = { NULL }; /* the first is for rest() */
	int n = 1;

	self = argv[0];
	must(argc < 1023);
	for (int i = 1; argc > 2 && i < argc; i++)
		words[n++] = argv[i];
	for (char *w = argc == 2 ? strtok(argv[1], " ") : NULL; w;
	     w = strtok(NULL, " "))
		words[n++] = w;
	todo = words + 1;
	run_steps();
	return 0;
}
