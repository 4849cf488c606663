/* SPDX-License-Identifier: MIT */
/*
 * view.h - a session as rows and columns, for a screen or a log.
 *
 * Knows nothing of terminals: lines come out as text, of a width given.
 */
#ifndef MT_TOOLS_VIEW_H
#define MT_TOOLS_VIEW_H

#include "tools/model.h"

enum view_column {
	VIEW_NAME,
	VIEW_CHARGED,
	VIEW_PEAK,
	VIEW_LOW,
	VIEW_HIGH,
	VIEW_MAX,
	VIEW_PERCENT,
	VIEW_HEAP,
	VIEW_ANON,
	VIEW_FILE,
	VIEW_SHMEM,
	VIEW_NET,
	VIEW_STALL,
	VIEW_EVENTS,
	VIEW_NR_COLUMNS,
};

/* Pages charged in a group, when it was last looked at. */
struct view_sample {
	uint64_t ident; /* of the group's record */
	int64_t charged;
};

struct view_row {
	uint32_t index; /* of a group, or of a process */
	uint32_t depth;
	uint32_t lines; /* bit i: an ancestor at depth i has more children */
	bool last;      /* of its parent's */
	bool parent;    /* has children */
	bool folded;
};

#define VIEW_HISTORY 600

struct view {
	/* Chosen by the user. */
	char path[4096]; /* of the session */
	enum view_column sort;
	bool tree;
	bool processes; /* rows are processes, not groups */
	bool ascii;
	char filter[64]; /* only rows that have it in their name */
	char **folded;   /* paths */
	uint32_t nr_folded;

	/* What was seen. */
	struct model model;
	bool loaded;
	bool ended; /* no process is left */
	struct view_row *rows;
	uint32_t nr_rows;
	uint32_t room;
	struct view_sample *samples;
	uint32_t nr_samples;
	double *rates; /* pages a second, by group */
	uint64_t sampled_ns;
	int64_t history[VIEW_HISTORY]; /* charged pages of "/" */
	uint32_t nr_history;           /* ever; the latest are kept */
};

/* Look at the session.  Return: 0 or a negative error number; what was seen
 * last is still there then. */
int view_refresh(struct view *view);

/* Make the rows anew, after something was chosen. */
void view_arrange(struct view *view);

void view_free(struct view *view);

/* What row @i is called: a group's path, or a process's name and pid. */
const char *view_row_name(const struct view *view, uint32_t i, char *buf,
			  size_t size);

/* Fold or unfold the group of a row. */
void view_fold(struct view *view, uint32_t row, bool fold);

const char *view_column_name(enum view_column column);

/* How many columns fit into @width, from the left. */
unsigned view_columns(const struct view *view, int width);

/* The head of the table, and one row of it: exactly @width columns wide. */
void view_head(const struct view *view, int width, char *buf, size_t size);
void view_line(const struct view *view, uint32_t row, int width, char *buf,
	       size_t size);

/* The lines above the table. */
void view_title(const struct view *view, char *buf, size_t size);
void view_rates(const struct view *view, char *buf, size_t size);

/* The latest history as @width characters of height. */
void view_history(const struct view *view, int width, char *buf, size_t size);

/* Cut or fill a text to exactly @width columns. */
void view_fit(char *buf, size_t size, const char *text, int width);

#endif
