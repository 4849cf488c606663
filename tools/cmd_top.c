/* SPDX-License-Identifier: MIT */
/*
 * cmd_top.c - memtally top: a session, live, on a screen.
 *
 * Reads the segment as everybody does, through pread(): nothing in the programs
 * changes, however many look.
 */
#include <curses.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <locale.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/atomic.h"
#include "tools/cmd.h"
#include "tools/explain.h"
#include "tools/find.h"
#include "tools/reap.h"
#include "tools/view.h"

static const char help[] =
	"Examples:\n"
	"  memtally top                  the only live session\n"
	"  memtally top -d 5 build       another, every five seconds\n"
	"  memtally top -b -n 10 build   ten times, as text\n"
	"\n"
	"Usage: memtally top [-d SEC] [-n N] [-b] [-1] [-C] [-R] [-U] "
	"[SESSION]\n"
	"\n"
	"  -d SEC  how often (1)       -b  lines for a log, no screen\n"
	"  -n N    how many times      -1  once, and as with -b\n"
	"  -C      no colours          -R  change nothing\n"
	"  -U      ASCII only          h, in it, says which keys there are\n";

static const char keys[] =
	"Keys\n"
	"\n"
	"  Up Down PgUp PgDn Home End, j k g G    move\n"
	"  + - Left Right, Enter                  unfold and fold a group\n"
	"  / F3       search                      n   next\n"
	"  F4 \\       show only what has a text in its name; empty: all\n"
	"  F5 t       tree or list                p   groups or processes\n"
	"  F6 > <     sort by the next, or the one before\n"
	"  F          stay on the row when it moves\n"
	"  F9 l       set a limit of the group: max=512M, high=75%, low=0 ...\n"
	"  e          explain: what of a process is in memory (p first)\n"
	"  c          coverage: how much of what is in memory is known\n"
	"  v          what happened at limits\n"
	"  Space      look now\n"
	"  F10 q      leave\n"
	"\n"
	"Columns\n"
	"\n"
	"  CHARGED    pages that are charged, stocks left out\n"
	"  LOW        the larger of min and low\n"
	"  %MAX       charged, of max         NET/s  change of it\n"
	"  STALL      time lost at limits, of the last 10 s; threads add up\n"
	"  EVENTS     the gravest kind that there was, in the subtree\n";

struct top {
	struct view view;
	double every;
	long count;
	bool batch;
	bool mono;
	bool read_only;
	bool follow;
	char name[4096]; /* of the session, for the other verbs */
	uint32_t row;    /* chosen */
	uint32_t first;  /* at the top of the table */
	char search[64];
	char message[256];
	char coverage[64]; /* when it was asked for */
};

enum { PLAIN, TITLE, HEAD, CHOSEN, WARN, ALARM, KEYS };

/* ---- without a screen ---- */

static void nap(double seconds)
{
	struct timespec ts;

	ts.tv_sec = (time_t)seconds;
	ts.tv_nsec = (long)((seconds - (double)ts.tv_sec) * 1e9);
	nanosleep(&ts, NULL);
}

/* What a line has at its end may be blanks. */
static void print_line(const char *text)
{
	size_t n = strlen(text);

	while (n && text[n - 1] == ' ')
		n--;
	printf("%.*s\n", (int)n, text);
}

static int run_batch(struct top *top)
{
	char line[4096];

	for (long i = 0; top->count < 0 || i < top->count; i++) {
		int ret;

		if (i)
			nap(top->every);
		reap_path(top->view.path);
		ret = view_refresh(&top->view);
		if (ret && i)
			return CMD_OK; /* it has been removed */
		if (ret) {
			complain(top->view.path, segment_error(ret));
			return segment_status(ret);
		}
		if (i)
			putchar('\n');
		view_title(&top->view, line, sizeof(line));
		print_line(line);
		view_rates(&top->view, line, sizeof(line));
		print_line(line);
		view_head(&top->view, 160, line, sizeof(line));
		print_line(line);
		for (uint32_t r = 0; r < top->view.nr_rows; r++) {
			view_line(&top->view, r, 160, line, sizeof(line));
			print_line(line);
		}
		if (!flush_output())
			return CMD_FAILED;
		if (top->view.ended)
			break;
	}
	return CMD_OK;
}

/* ---- the screen ---- */

static void put(const struct top *top, int y, int style, const char *text)
{
	static const attr_t mono[] = { A_NORMAL,  A_BOLD, A_REVERSE,
				       A_REVERSE, A_BOLD, A_REVERSE,
				       A_REVERSE };
	char line[4096];

	if (y < 0 || y >= LINES)
		return;
	/* The corner can't be written to everywhere. */
	view_fit(line, sizeof(line), text, y == LINES - 1 ? COLS - 1 : COLS);
	attrset(top->mono ? mono[style]
			  : (attr_t)COLOR_PAIR(style) |
				    (style == TITLE ? A_BOLD : A_NORMAL));
	mvaddstr(y, 0, line);
	attrset(A_NORMAL);
}

static void start_colours(struct top *top)
{
	const char *term = getenv("TERM");

	if (getenv("NO_COLOR") || (term && !strcmp(term, "dumb")) ||
	    !has_colors())
		top->mono = true;
	if (top->mono)
		return;
	start_color();
	use_default_colors();
	init_pair(TITLE, -1, -1);
	init_pair(HEAD, COLOR_BLACK, COLOR_GREEN);
	init_pair(CHOSEN, COLOR_BLACK, COLOR_CYAN);
	init_pair(WARN, COLOR_YELLOW, -1);
	init_pair(ALARM, COLOR_RED, -1);
	init_pair(KEYS, COLOR_BLACK, COLOR_CYAN);
}

/* "Total [|||||h|||   M] 431.2M high 400.0M max 512.0M  peak 449.0M" */
static void put_bar(const struct top *top, int y)
{
	const struct model *model = &top->view.model;
	const struct model_group *root = &model->groups[MT_ROOT];
	int64_t high = load_relaxed(&root->record.high);
	int64_t max = load_relaxed(&root->record.max);
	int64_t whole = max;
	int width = MT_MIN(MT_MAX(COLS - 64, 10), 60);
	char bar[64];
	char line[512];
	char text[4][16];
	int style = PLAIN;

	if (whole >= MT_UNLIMITED)
		whole = MT_MAX(load_relaxed(&root->record.peak), 1);
	for (int i = 0; i < width; i++)
		bar[i] = (double)root->charged * width >
					 (double)i * (double)whole
				 ? '|'
				 : ' ';
	if (high < MT_UNLIMITED && whole > 0 && high <= whole)
		bar[MT_MIN((int)((double)high * width / (double)whole),
			   width - 1)] = 'h';
	bar[width] = '\0';
	snprintf(line, sizeof(line), "Total [%s%s] %s%s%s%s%s  peak %s", bar,
		 max < MT_UNLIMITED ? "M" : "",
		 model_size(model, root->charged, text[0]),
		 high < MT_UNLIMITED ? " high " : "",
		 high < MT_UNLIMITED ? model_size(model, high, text[1]) : "",
		 max < MT_UNLIMITED ? " max " : "",
		 max < MT_UNLIMITED ? model_size(model, max, text[2]) : "",
		 model_size(model, load_relaxed(&root->record.peak), text[3]));
	if (max < MT_UNLIMITED && root->charged >= max / 100 * 95)
		style = ALARM;
	else if (root->charged > high)
		style = WARN;
	put(top, y, style, line);
}

static int table_lines(void)
{
	return LINES - 6;
}

static void keep_in_sight(struct top *top)
{
	uint32_t n = top->view.nr_rows;
	uint32_t lines = (uint32_t)MT_MAX(table_lines(), 1);

	if (top->row >= n)
		top->row = n ? n - 1 : 0;
	if (top->row < top->first)
		top->first = top->row;
	if (top->row >= top->first + lines)
		top->first = top->row - lines + 1;
	if (top->first && top->first + lines > n)
		top->first = n > lines ? n - lines : 0;
}

static int style_of(const struct top *top, uint32_t row)
{
	const struct model_group *g;
	int64_t max;

	if (row == top->row)
		return CHOSEN;
	if (top->view.processes)
		return PLAIN;
	g = &top->view.model.groups[top->view.rows[row].index];
	max = load_relaxed(&g->record.max);
	if (max < MT_UNLIMITED && g->charged >= max / 100 * 95)
		return ALARM;
	return g->charged > load_relaxed(&g->record.high) ? WARN : PLAIN;
}

static void draw(struct top *top)
{
	char line[4096];

	erase();
	if (LINES < 8 || COLS < 40) {
		put(top, 0, PLAIN, "too small a window");
		refresh();
		return;
	}
	keep_in_sight(top);
	view_title(&top->view, line, sizeof(line));
	snprintf(line + strlen(line), sizeof(line) - strlen(line), "%s",
		 top->coverage);
	put(top, 0, TITLE, line);
	put_bar(top, 1);
	view_rates(&top->view, line, sizeof(line));
	put(top, 2, PLAIN, line);
	view_history(&top->view, COLS, line, sizeof(line));
	put(top, 3, PLAIN, line);
	view_head(&top->view, COLS, line, sizeof(line));
	put(top, 4, HEAD, line);
	for (int i = 0; i < table_lines(); i++) {
		uint32_t row = top->first + (uint32_t)i;

		if (row >= top->view.nr_rows)
			break;
		view_line(&top->view, row, COLS, line, sizeof(line));
		put(top, 5 + i, style_of(top, row), line);
	}
	if (top->message[0])
		put(top, LINES - 1, WARN, top->message);
	else
		put(top, LINES - 1, KEYS,
		    top->read_only
			    ? "F1Help F3Search F4Filter F5Tree F6Sort F10Quit  "
			      "e Explain  v Events"
			    : "F1Help F3Search F4Filter F5Tree F6Sort F9Limit "
			      "F10Quit  e Explain  v Events");
	refresh();
}

/* A line of text from the user, at the foot.  Return: false: given up. */
static bool ask(struct top *top, const char *question, char *text, size_t size)
{
	size_t n = strlen(text);

	for (;;) {
		char line[512];
		int key;

		snprintf(line, sizeof(line), "%s%s_", question, text);
		put(top, LINES - 1, CHOSEN, line);
		refresh();
		timeout(-1);
		key = getch();
		if (key == '\n' || key == '\r' || key == KEY_ENTER)
			return true;
		if (key == 27 || key == ERR)
			return false;
		if ((key == KEY_BACKSPACE || key == 127 || key == 8) && n)
			text[--n] = '\0';
		else if (key >= ' ' && key < 127 && n + 1 < size) {
			text[n++] = (char)key;
			text[n] = '\0';
		}
	}
}

/* Text of many lines, a screen at a time. */
static void show_text(struct top *top, char *text)
{
	int nr = 0;
	int first = 0;

	for (char *c = text; *c; c++)
		nr += *c == '\n';
	for (;;) {
		const char *at = text;
		int key;

		erase();
		for (int i = 0; i < first && *at; i++)
			at = strchrnul(at, '\n') + 1;
		for (int y = 0; y < LINES - 1 && *at; y++) {
			size_t n = strcspn(at, "\n");
			char line[2048];

			snprintf(line, sizeof(line), "%.*s",
				 (int)MT_MIN(n, sizeof(line) - 1), at);
			mt_reader_clean(line, sizeof(line));
			put(top, y, PLAIN, line);
			at += n + !!at[n];
		}
		put(top, LINES - 1, KEYS,
		    "Up Down PgUp PgDn   any other key: back");
		refresh();
		timeout(-1);
		key = getch();
		if (key == KEY_DOWN)
			first++;
		else if (key == KEY_UP)
			first--;
		else if (key == KEY_NPAGE)
			first += LINES - 2;
		else if (key == KEY_PPAGE)
			first -= LINES - 2;
		else if (key != KEY_RESIZE)
			return;
		first = MT_MAX(MT_MIN(first, nr - 1), 0);
	}
}

/* What another verb prints; freed by the caller. */
static char *output_of(char *const *argv, int *status)
{
	posix_spawn_file_actions_t actions;
	extern char **environ;
	size_t room = (size_t)4 << 20;
	size_t n = 0;
	char *text = malloc(room);
	int fds[2];
	pid_t pid;
	ssize_t got;

	*status = -1;
	if (!text || pipe(fds)) {
		free(text);
		return NULL;
	}
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fds[1], 1);
	posix_spawn_file_actions_adddup2(&actions, fds[1], 2);
	posix_spawn_file_actions_addclose(&actions, fds[0]);
	if (posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv,
			environ)) {
		close(fds[0]);
		close(fds[1]);
		posix_spawn_file_actions_destroy(&actions);
		free(text);
		return NULL;
	}
	posix_spawn_file_actions_destroy(&actions);
	close(fds[1]);
	while (n + 1 < room &&
	       ((got = read(fds[0], text + n, room - 1 - n)) > 0 ||
		(got < 0 && errno == EINTR)))
		n += got > 0 ? (size_t)got : 0;
	text[n] = '\0';
	close(fds[0]);
	while (waitpid(pid, status, 0) < 0 && errno == EINTR)
		;
	return text;
}

static void say(struct top *top, const char *text)
{
	const char *prefix = "memtally: ";

	if (!strncmp(text, prefix, strlen(prefix)))
		text += strlen(prefix);
	snprintf(top->message, sizeof(top->message), "%.*s",
		 (int)MT_MIN(strcspn(text, "\n"), sizeof(top->message) - 1),
		 text);
}

static void show_output(struct top *top, char *const *argv)
{
	int status;
	char *text = output_of(argv, &status);

	if (!text || !text[0])
		say(top, text ? "nothing" : strerror(errno));
	else
		show_text(top, text);
	free(text);
}

static void explain(struct top *top)
{
	char *argv[] = { "memtally", "explain", NULL, NULL };
	char answer[4] = "";
	char pid[16];
	uint32_t i;

	if (!top->view.processes || !top->view.nr_rows) {
		say(top, "explain is of a process: p shows them");
		return;
	}
	i = top->view.rows[top->row].index;
	snprintf(pid, sizeof(pid), "%u", top->view.model.processes[i].pid);
	argv[2] = pid;
	if (ask(top,
		"reads smaps: the process waits some ms for each GB, if it "
		"maps meanwhile.  y? ",
		answer, sizeof(answer)) &&
	    (answer[0] == 'y' || answer[0] == 'Y'))
		show_output(top, argv);
}

/* Of all living processes together: what they have in memory, and what of it
 * is known.  Only when it is asked for, as it costs them something. */
static void look_at_coverage(struct top *top)
{
	const struct model *model = &top->view.model;
	double known = 0;
	double all = 0;

	for (uint32_t i = 0; i < model->nr_processes; i++) {
		struct explain one = { .model = model,
				       .process = &model->processes[i] };

		if (one.process->alive &&
		    load_relaxed(&one.process->record.pid_ns) ==
			    model->pid_ns &&
		    !explain_process(&one)) {
			known += explain_coverage(&one) * (double)one.resident;
			all += (double)one.resident;
		}
		explain_free(&one);
	}
	if (all > 0)
		snprintf(top->coverage, sizeof(top->coverage),
			 "  coverage %.1f%%", known * 100 / all);
	else
		say(top, "nobody is there");
}

static void ask_for_coverage(struct top *top)
{
	char answer[4] = "";

	if (ask(top,
		"reads smaps of all: each waits some ms for each GB, if it "
		"maps "
		"meanwhile.  y? ",
		answer, sizeof(answer)) &&
	    (answer[0] == 'y' || answer[0] == 'Y'))
		look_at_coverage(top);
}

static void set_limit(struct top *top)
{
	static char change[64];
	char *argv[] = { "memtally", "set", NULL, change, NULL };
	const struct model_group *g;
	char question[512];
	char group[8192];
	char text[5][16];
	const struct model *model = &top->view.model;
	int status;
	char *said;

	if (top->read_only || top->view.processes || !top->view.nr_rows) {
		say(top, top->read_only ? "read only (-R)"
					: "limits are of groups: p shows them");
		return;
	}
	g = &model->groups[top->view.rows[top->row].index];
	snprintf(question, sizeof(question),
		 "%.60s has %s; min %s low %s (worth %s) max %s.  KEY=SIZE: ",
		 g->path, model_size(model, g->charged, text[0]),
		 model_size(model, load_relaxed(&g->record.min), text[1]),
		 model_size(model, load_relaxed(&g->record.low), text[2]),
		 model_size(model, g->protection.elow, text[3]),
		 load_relaxed(&g->record.max) >= MT_UNLIMITED
			 ? "-"
			 : model_size(model, load_relaxed(&g->record.max),
				      text[4]));
	change[0] = '\0';
	if (!ask(top, question, change, sizeof(change)) || !change[0])
		return;
	snprintf(group, sizeof(group), "%s:%s", top->name, g->path);
	argv[2] = group;
	said = output_of(argv, &status);
	say(top, said && said[0] ? said : status ? "failed" : "done");
	free(said);
}

static void search(struct top *top, bool again)
{
	uint32_t n = top->view.nr_rows;
	char name[MODEL_PATH];

	if (!again && !ask(top, "search: ", top->search, sizeof(top->search)))
		return;
	for (uint32_t k = 1; k <= n && top->search[0]; k++) {
		uint32_t row = (top->row + k) % n;

		if (strstr(view_row_name(&top->view, row, name, sizeof(name)),
			   top->search)) {
			top->row = row;
			return;
		}
	}
	say(top, "not found");
}

static void sort_by(struct top *top, int step)
{
	top->view.sort = (enum view_column)(
		((int)top->view.sort + step + VIEW_NR_COLUMNS) %
		VIEW_NR_COLUMNS);
	view_arrange(&top->view);
	snprintf(top->message, sizeof(top->message), "sorted by %s",
		 view_column_name(top->view.sort));
}

static void move_by(struct top *top, int64_t step)
{
	int64_t row = (int64_t)top->row + step;

	row = MT_MIN(row, (int64_t)top->view.nr_rows - 1);
	top->row = (uint32_t)MT_MAX(row, 0);
}

static void fold(struct top *top, bool folded)
{
	view_fold(&top->view, top->row, folded);
	view_arrange(&top->view);
}

/* Return: false: leave. */
static bool take_key(struct top *top, int key)
{
	top->message[0] = '\0';
	switch (key) {
	case 'q':
	case KEY_F(10):
		return false;
	case KEY_UP:
	case 'k':
		move_by(top, -1);
		break;
	case KEY_DOWN:
	case 'j':
		move_by(top, 1);
		break;
	case KEY_PPAGE:
		move_by(top, -table_lines());
		break;
	case KEY_NPAGE:
		move_by(top, table_lines());
		break;
	case KEY_HOME:
	case 'g':
		top->row = 0;
		break;
	case KEY_END:
	case 'G':
		move_by(top, INT32_MAX);
		break;
	case '+':
	case KEY_RIGHT:
		fold(top, false);
		break;
	case '-':
	case KEY_LEFT:
		fold(top, true);
		break;
	case '\n':
	case '\r':
	case KEY_ENTER:
		if (top->row < top->view.nr_rows)
			fold(top, !top->view.rows[top->row].folded);
		break;
	case 'h':
	case '?':
	case KEY_F(1): {
		char text[sizeof(keys)];

		memcpy(text, keys, sizeof(keys));
		show_text(top, text);
		break;
	}
	case '/':
	case KEY_F(3):
		search(top, false);
		break;
	case 'n':
		search(top, true);
		break;
	case '\\':
	case KEY_F(4):
		ask(top, "only with: ", top->view.filter,
		    sizeof(top->view.filter));
		view_arrange(&top->view);
		break;
	case 't':
	case KEY_F(5):
		top->view.tree = !top->view.tree;
		view_arrange(&top->view);
		break;
	case 'p':
		top->view.processes = !top->view.processes;
		top->row = 0;
		view_arrange(&top->view);
		break;
	case '>':
	case KEY_F(6):
		sort_by(top, 1);
		break;
	case '<':
		sort_by(top, -1);
		break;
	case 'F':
		top->follow = !top->follow;
		say(top, top->follow ? "the row is followed"
				     : "the row stays where it is");
		break;
	case 'l':
	case KEY_F(9):
		set_limit(top);
		break;
	case 'e':
		explain(top);
		break;
	case 'c':
		ask_for_coverage(top);
		break;
	case 'v': {
		char *argv[] = { "memtally", "events", top->name, NULL };

		show_output(top, argv);
		break;
	}
	}
	return true;
}

/* The rows have been made anew: where is the chosen one? */
static void find_again(struct top *top, const char *name)
{
	char now[MODEL_PATH];

	for (uint32_t i = 0; top->follow && i < top->view.nr_rows; i++) {
		if (!strcmp(view_row_name(&top->view, i, now, sizeof(now)),
			    name)) {
			top->row = i;
			return;
		}
	}
}

static int look(struct top *top)
{
	char name[MODEL_PATH] = "";
	int ret;

	if (top->row < top->view.nr_rows)
		view_row_name(&top->view, top->row, name, sizeof(name));
	reap_path(top->view.path);
	ret = view_refresh(&top->view);
	if (!ret)
		find_again(top, name);
	return ret;
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int run_screen(struct top *top)
{
	int64_t next = now_ms();
	long looks = 0;
	int status = CMD_OK;

	for (;;) {
		int64_t wait;
		int key;
		int ret;

		if (now_ms() >= next) {
			if (top->count >= 0 && looks++ >= top->count)
				break;
			ret = look(top);
			if (ret && !top->view.loaded) {
				status = ret;
				break;
			}
			if (ret)
				say(top, "the session has been removed; this "
					 "is what there was");
			next = now_ms() + (int64_t)(top->every * 1000);
		}
		draw(top);
		wait = MT_MAX(next - now_ms(), 0);
		timeout((int)MT_MIN(wait, 3600000));
		key = getch();
		if (key == ' ')
			next = now_ms();
		else if (key != ERR && key != KEY_RESIZE && !take_key(top, key))
			break;
		/* The terminal is gone. */
		if (key == ERR && !isatty(STDIN_FILENO))
			break;
	}
	return status;
}

static int start_screen(struct top *top)
{
	SCREEN *screen;
	int ret;

	if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)) {
		complain("top", "not a terminal; -b prints lines");
		return CMD_FAILED;
	}
	/* What can't be read is said before the screen is taken. */
	reap_path(top->view.path);
	ret = view_refresh(&top->view);
	if (ret) {
		complain(top->view.path, segment_error(ret));
		return segment_status(ret);
	}
	set_escdelay(25);
	screen = newterm(NULL, stdout, stdin);
	if (!screen) {
		complain(getenv("TERM") ? getenv("TERM") : "TERM",
			 "unknown terminal; -b prints lines");
		return CMD_FAILED;
	}
	cbreak();
	noecho();
	nonl();
	keypad(stdscr, TRUE);
	curs_set(0);
	start_colours(top);
	ret = run_screen(top);
	endwin();
	delscreen(screen);
	if (ret) {
		complain(top->view.path, segment_error(ret));
		return segment_status(ret);
	}
	return CMD_OK;
}

static bool take_option(struct top *top, int opt)
{
	char *end;

	switch (opt) {
	case 'd':
		top->every = strtod(optarg, &end);
		if (end == optarg || *end ||
		    !(top->every >= 0.1 && top->every <= 86400)) {
			complain(optarg, "not a number of seconds");
			return false;
		}
		return true;
	case 'n':
		top->count = strtol(optarg, &end, 10);
		if (end == optarg || *end || top->count < 1) {
			complain(optarg, "not a count");
			return false;
		}
		return true;
	case 'b':
		top->batch = true;
		return true;
	case '1':
		top->batch = true;
		top->count = 1;
		return true;
	case 'C':
		top->mono = true;
		return true;
	case 'R':
		top->read_only = true;
		return true;
	case 'U':
		top->view.ascii = true;
		return true;
	default:
		return false;
	}
}

int cmd_top(int argc, char **argv)
{
	static const struct option options[] = { { "help", 0, NULL, 'h' },
						 { NULL, 0, NULL, 0 } };
	static struct top top;
	const char *slash;
	int status;
	int opt;

	top.every = 1;
	top.count = -1;
	top.view.tree = true;
	top.view.sort = VIEW_CHARGED;
	while ((opt = getopt_long(argc, argv, "d:n:b1CRUh", options, NULL)) !=
	       -1) {
		if (opt == 'h') {
			fputs(help, stdout);
			return flush_output() ? CMD_OK : CMD_FAILED;
		}
		if (!take_option(&top, opt))
			return CMD_USAGE;
	}
	if (argc - optind > 1) {
		complain("top", "one session at a time");
		return CMD_USAGE;
	}
	if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1)
		top.view.ascii = true;
	status = find_session(argv[optind], top.view.path);
	if (status)
		return status;
	slash = strrchr(top.view.path, '/');
	snprintf(top.name, sizeof(top.name), "%s",
		 slash ? slash + 1 : top.view.path);
	status = top.batch ? run_batch(&top) : start_screen(&top);
	view_free(&top.view);
	return status;
}
