/* SPDX-License-Identifier: MIT */
#include <sys/mman.h>

#include "core/mapping.h"
#include "tests/unit/session.h"

#define PAGES   256
#define OBJECTS 3

/* What a page is, kept the simple way. */
struct page {
	int type;
	uint32_t group;
	uint32_t state; /* without MT_MAP_ACCOUNT for shared memory */
	uint64_t object;
	uint64_t offset; /* page of the object */
};

static struct mt_map map;
static struct page model[PAGES];
static int64_t counted[3][MT_NR_KINDS];
static uint64_t pg;
static unsigned seed;

static unsigned pick(unsigned n)
{
	seed = seed * 1103515245u + 12345u;
	return (seed >> 16) % n;
}

static void account(void *arg, uint32_t group, enum mt_kind kind, int64_t pages)
{
	(void)arg;
	counted[group][kind] += pages;
}

static void drop(uint64_t start, uint64_t end)
{
	uint32_t list = mt_map_detach(&map, start, end);

	mt_map_weigh(&map, list, account, NULL);
	mt_map_free(&map, list, account, NULL);
}

static void put(const struct mt_range *range)
{
	enum mt_kind kind;

	drop(range->start, range->end);
	if (mt_map_kind(range, &kind))
		account(NULL, range->group, kind,
			(int64_t)((range->end - range->start) / pg));
	ck_assert_int_eq(mt_map_insert(&map, range, account, NULL), 0);
}

static void random_insert(void)
{
	struct mt_range range = { 0 };
	unsigned first = pick(PAGES - 30);
	unsigned n = 1 + pick(30);

	range.start = first * pg;
	range.end = (first + n) * pg;
	/* One group for shared memory: whose it is when handed on is not
	 * the model's concern. */
	if (pick(3) == 0) {
		range.type = MT_MAP_SHMEM;
		range.object = 1 + pick(OBJECTS);
		range.offset = pick(20) * pg;
		range.state = MT_MAP_ACCOUNT | MT_MAP_WRITE;
	} else {
		range.type = pick(2) ? MT_MAP_ANON : MT_MAP_FILE;
		range.group = pick(3);
		range.state =
			pick(2) ? MT_MAP_WRITE | MT_MAP_ACCOUNT : MT_MAP_NONE;
		range.offset = range.type == MT_MAP_FILE ? first * pg : 0;
	}
	put(&range);
	for (unsigned i = 0; i < n; i++) {
		model[first + i].type = (int)range.type;
		model[first + i].group = range.group;
		model[first + i].state = range.state;
		model[first + i].object = range.object;
		model[first + i].offset = range.offset / pg + i;
	}
}

static void random_punch(void)
{
	unsigned first = pick(PAGES - 30);
	unsigned n = 1 + pick(30);

	if (pick(4) == 0) {
		/* A call that failed: as if nothing had been. */
		uint32_t list =
			mt_map_detach(&map, first * pg, (first + n) * pg);

		mt_map_attach(&map, list);
		return;
	}
	drop(first * pg, (first + n) * pg);
	memset(&model[first], 0, n * sizeof(model[0]));
}

static void random_protect(void)
{
	unsigned first = pick(PAGES - 30);
	unsigned n = 1 + pick(30);
	bool writable = pick(2);

	if (writable)
		mt_map_would_account(&map, first * pg, (first + n) * pg,
				     account, NULL);
	mt_map_protect(&map, first * pg, (first + n) * pg, writable, false);
	for (unsigned i = first; i < first + n; i++) {
		if (!model[i].type)
			continue;
		model[i].state &= ~(MT_MAP_WRITE | MT_MAP_NONE);
		if (writable) {
			model[i].state |= MT_MAP_WRITE;
			if (model[i].type != MT_MAP_SHMEM)
				model[i].state |= MT_MAP_ACCOUNT;
		}
	}
}

static void random_shift(void)
{
	unsigned n = 1 + pick(20);
	unsigned from = pick(PAGES / 2 - 20);
	unsigned to = PAGES / 2 + pick(PAGES / 2 - 20);
	uint32_t list;

	drop(to * pg, (to + n) * pg);
	list = mt_map_detach(&map, from * pg, (from + n) * pg);
	mt_map_shift(&map, list, from * pg, to * pg);
	memcpy(&model[to], &model[from], n * sizeof(model[0]));
	memset(&model[from], 0, n * sizeof(model[0]));
}

static void compare_counts(void)
{
	int64_t want[3][MT_NR_KINDS] = { 0 };
	bool seen[OBJECTS + 1][64] = { 0 };

	for (int i = 0; i < PAGES; i++) {
		const struct page *p = &model[i];

		if (p->type == MT_MAP_SHMEM) {
			if (!seen[p->object][p->offset])
				want[0][MT_SHMEM]++;
			seen[p->object][p->offset] = true;
		} else if (p->state & MT_MAP_ACCOUNT) {
			want[p->group]
			    [p->type == MT_MAP_ANON ? MT_ANON : MT_FILE]++;
		}
	}
	for (int g = 0; g < 3; g++) {
		for (int k = 0; k < MT_NR_KINDS; k++)
			ck_assert_int_eq(counted[g][k], want[g][k]);
	}
}

/* Every page is found as what it is, and neighbours are one record. */
static void compare_pages(void)
{
	struct mt_range range;

	for (int i = 0; i < PAGES; i++) {
		const struct page *p = &model[i];
		bool found = mt_map_find(&map, (uint64_t)i * pg, &range);

		ck_assert_int_eq(found, p->type != 0);
		if (!found)
			continue;
		ck_assert_int_eq((int)range.type, p->type);
		ck_assert_uint_eq(range.group, p->group);
		ck_assert_uint_eq(range.object, p->object);
		if (p->type != MT_MAP_ANON)
			ck_assert_uint_eq(range.offset / pg + (uint64_t)i -
						  range.start / pg,
					  p->offset);
		ck_assert_uint_eq(range.state & MT_MAP_WRITE,
				  p->state & MT_MAP_WRITE);
		if (p->type != MT_MAP_SHMEM)
			ck_assert_uint_eq(range.state & MT_MAP_ACCOUNT,
					  p->state & MT_MAP_ACCOUNT);
	}
}

static void start_map(void)
{
	pg = (uint64_t)sysconf(_SC_PAGESIZE);
	memset(model, 0, sizeof(model));
	memset(counted, 0, sizeof(counted));
	ck_assert_int_eq(mt_map_init(&map, NULL, 1), 0);
}

static void end_map(void)
{
	mt_map_finish(&map);
}

START_TEST(random_operations_agree_with_a_table_of_pages)
{
	seed = (unsigned)_i + 1;
	for (int step = 0; step < 3000; step++) {
		switch (pick(5)) {
		case 0:
		case 1:
			random_insert();
			break;
		case 2:
			random_punch();
			break;
		case 3:
			random_protect();
			break;
		case 4:
			random_shift();
			break;
		}
		compare_counts();
		if (step % 16 == 0)
			compare_pages();
		if (step % 500 == 499) {
			mt_map_rebuild(&map);
			compare_pages();
		}
	}
	drop(0, PAGES * pg);
	for (int g = 0; g < 3; g++) {
		for (int k = 0; k < MT_NR_KINDS; k++)
			ck_assert_int_eq(counted[g][k], 0);
	}
}
END_TEST

START_TEST(sixty_thousand_records_are_found_and_freed)
{
	struct mt_range range = { .type = MT_MAP_ANON,
				  .state = MT_MAP_WRITE | MT_MAP_ACCOUNT };

	/* Every other page, so that none merge; from both ends inward. */
	for (uint64_t i = 0; i < 60000; i++) {
		uint64_t at = i % 2 ? i : 60000 - i;

		range.start = at * 2 * pg + pg;
		range.end = range.start + pg;
		put(&range);
	}
	ck_assert_int_eq(counted[0][MT_ANON], 60000);
	ck_assert(mt_map_find(&map, 2 * 777 * pg + pg, &range));
	ck_assert(!mt_map_find(&map, 2 * 777 * pg, &range));
	drop(0, 200000 * pg);
	ck_assert_int_eq(counted[0][MT_ANON], 0);
}
END_TEST

START_TEST(the_table_is_in_its_file)
{
	struct mt_range range = { .type = MT_MAP_ANON, .end = 4096 };
	struct mt_map_header header;
	struct mt_map_slot slot;
	char path[80];
	FILE *f;

	snprintf(path, sizeof(path), "/dev/shm/mt-unit-map-%d", (int)getpid());
	mt_map_finish(&map);
	ck_assert_int_eq(mt_map_init(&map, path, 4711), 0);
	ck_assert(map.shared);
	range.start = 3 * pg;
	range.end = 5 * pg;
	ck_assert_int_eq(mt_map_insert(&map, &range, account, NULL), 0);

	f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fread(&header, sizeof(header), 1, f), 1);
	ck_assert_uint_eq(fread(&slot, sizeof(slot), 1, f), 1);
	fclose(f);
	unlink(path);
	ck_assert(load_relaxed(&header.magic) == MT_MAP_MAGIC);
	ck_assert_uint_eq(header.pid, 4711);
	ck_assert_uint_eq(load_relaxed(&slot.start), 3 * pg);
	ck_assert_uint_eq(load_relaxed(&slot.end), 5 * pg);
	ck_assert_uint_eq(load_relaxed(&slot.seq) & 1, 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("mapping");

	tcase_add_checked_fixture(tc, start_map, end_map);
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, random_operations_agree_with_a_table_of_pages,
			    0, 12);
	tcase_add_test(tc, sixty_thousand_records_are_found_and_freed);
	tcase_add_test(tc, the_table_is_in_its_file);
	return run_case(tc, "mapping");
}
