/* SPDX-License-Identifier: MIT */
/*
 * The mapping table: each operation by itself, and then random ones against a
 * model that knows every page.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/mapping.h"

#ifdef MT_FUZZ /* where Check isn't running */
#undef ck_assert
#define ck_assert(x)                                                           \
	do {                                                                   \
		if (!(x))                                                      \
			abort();                                               \
	} while (0)
#undef ck_abort_msg
#define ck_abort_msg(...) (fprintf(stderr, __VA_ARGS__), abort())
#endif

#define PAGE   UINT64_C(4096)
#define BASE   UINT64_C(0x10000)
#define GROUPS 4

static struct mt_mapping map;
static char path[64]; /* of its mirror */
static int64_t charged[GROUPS][MT_NR_KINDS];

static void charge(uint32_t group, enum mt_kind kind, int64_t pages)
{
	charged[group][kind] += pages;
}

static struct mt_mapping_bill bill = { .nr = 0, .spill = charge };

/* What is on the bill is paid. */
static void pay(void)
{
	for (uint32_t i = 0; i < bill.nr; i++)
		charge(bill.entry[i].group, (enum mt_kind)bill.entry[i].kind,
		       bill.entry[i].pages);
	bill.nr = 0;
}

static void setup(void)
{
	memset(charged, 0, sizeof(charged));
	bill.nr = 0;
	mt_mapping_init(&map, PAGE);
}

static void teardown(void)
{
	mt_mapping_finish(&map);
	if (path[0])
		unlink(path);
}

static uint64_t at(uint64_t page)
{
	return BASE + page * PAGE;
}

static struct mt_map_range make(uint64_t page, uint64_t pages, uint32_t type,
				uint32_t state, uint32_t group)
{
	return (struct mt_map_range){
		.start = at(page),
		.end = at(page + pages),
		.type = type,
		.state = state,
		.group = group,
	};
}

static void insert(struct mt_map_range range)
{
	ck_assert(mt_mapping_insert(&map, &range, &bill));
	pay();
	ck_assert(mt_mapping_check(&map));
}

/* Many single pages, a page apart. */
static void scatter(uint64_t first, uint64_t n)
{
	for (uint64_t i = first; i < first + n; i++) {
		struct mt_map_range range =
			make(i * 2, 1, MT_MAP_ANON, MT_MAP_WRITE, 1);

		if (!mt_mapping_insert(&map, &range, &bill))
			ck_abort_msg("record %d", (int)i);
	}
	pay();
	ck_assert(mt_mapping_check(&map));
}

static void anon(uint64_t page, uint64_t pages, uint32_t group)
{
	insert(make(page, pages, MT_MAP_ANON, MT_MAP_WRITE, group));
}

static void shared(uint64_t page, uint64_t pages, uint64_t object,
		   uint64_t offset, uint32_t group)
{
	struct mt_map_range range =
		make(page, pages, MT_MAP_SHMEM, MT_MAP_WRITE, group);

	range.object = object;
	range.offset = offset * PAGE;
	insert(range);
}

static void punch(uint64_t page, uint64_t pages)
{
	mt_mapping_punch(&map, at(page), at(page + pages), &bill);
	pay();
	ck_assert(mt_mapping_check(&map));
}

static void protect(uint64_t page, uint64_t pages, uint32_t state)
{
	mt_mapping_protect(&map, at(page), at(page + pages), state, &bill);
	pay();
	ck_assert(mt_mapping_check(&map));
}

START_TEST(private_and_writable_is_charged)
{
	anon(0, 10, 1);
	ck_assert_int_eq(charged[1][MT_ANON], 10);

	punch(0, 10);
	ck_assert_int_eq(charged[1][MT_ANON], 0);
	ck_assert_uint_eq(map.nr, 0);
}
END_TEST

START_TEST(what_the_kernel_does_not_account_is_only_tracked)
{
	struct mt_mapping_tracked tracked;

	insert(make(0, 1, MT_MAP_ANON, MT_MAP_NONE, 1));
	insert(make(10, 2, MT_MAP_ANON, MT_MAP_WRITE | MT_MAP_NORESERVE, 1));
	insert(make(20, 4, MT_MAP_ANON, MT_MAP_WRITE | MT_MAP_HUGETLB, 1));
	insert(make(30, 8, MT_MAP_FILE, 0, 1));
	insert(make(40, 16, MT_MAP_SHARED_FILE, MT_MAP_WRITE, 1));
	insert(make(60, 32, MT_MAP_DEVICE, MT_MAP_WRITE, 1));
	insert(make(100, 64, MT_MAP_STACK, MT_MAP_WRITE, 1));
	insert(make(200, 128, MT_MAP_SHMEM, MT_MAP_WRITE | MT_MAP_HUGETLB, 1));

	for (int k = 0; k < MT_NR_KINDS; k++)
		ck_assert_int_eq(charged[1][k], 0);
	mt_mapping_tracked(&map, &tracked);
	ck_assert_int_eq(tracked.reserved, 1 + 2 + 4);
	ck_assert_int_eq(tracked.file_mapped, 8 + 16);
	ck_assert_int_eq(tracked.stack, 64);
	ck_assert_int_eq(tracked.shared, 128);
}
END_TEST

START_TEST(each_kind_is_charged_as_itself)
{
	insert(make(0, 1, MT_MAP_ANON, MT_MAP_WRITE, 1));
	insert(make(10, 2, MT_MAP_FILE, MT_MAP_WRITE, 1));
	insert(make(20, 4, MT_MAP_BRK, MT_MAP_WRITE, 1));
	shared(30, 8, 7, 0, 1);

	ck_assert_int_eq(charged[1][MT_ANON], 1);
	ck_assert_int_eq(charged[1][MT_FILE], 2);
	ck_assert_int_eq(charged[1][MT_BRK], 4);
	ck_assert_int_eq(charged[1][MT_SHMEM], 8);
}
END_TEST

START_TEST(a_hole_leaves_both_sides)
{
	struct mt_map_range range;

	anon(0, 100, 1);
	punch(40, 20);
	punch(40, 20);

	ck_assert_int_eq(charged[1][MT_ANON], 80);
	ck_assert_uint_eq(map.nr, 2);
	ck_assert(mt_mapping_find(&map, at(39), &range));
	ck_assert_uint_eq(range.end, at(40));
	ck_assert(mt_mapping_find(&map, at(40), &range));
	ck_assert_uint_eq(range.start, at(60));
	ck_assert(!mt_mapping_find(&map, at(100), &range));
}
END_TEST

START_TEST(a_sweep_removes_whole_and_parts)
{
	for (uint64_t i = 0; i < 20; i++)
		anon(i * 10, 5, (uint32_t)(i % GROUPS));
	punch(2, 190);

	/* Two pages of the first, three of the last (190 to 195). */
	ck_assert_int_eq(charged[0][MT_ANON], 2);
	ck_assert_int_eq(charged[19 % GROUPS][MT_ANON], 3);
	ck_assert_uint_eq(map.nr, 2);
}
END_TEST

START_TEST(neighbours_that_continue_each_other_are_one_record)
{
	anon(0, 10, 1);
	anon(20, 10, 1);
	anon(10, 10, 1);
	ck_assert_uint_eq(map.nr, 1);

	anon(30, 10, 2);
	insert(make(40, 10, MT_MAP_ANON, 0, 2));
	ck_assert_uint_eq(map.nr, 3);
	shared(60, 5, 9, 0, 1);
	shared(65, 5, 9, 5, 1);
	ck_assert_uint_eq(map.nr, 4);
	shared(70, 5, 9, 20, 1);
	ck_assert_uint_eq(map.nr, 5);
}
END_TEST

START_TEST(a_fixed_mapping_replaces_what_lies_there)
{
	anon(0, 30, 1);
	insert(make(10, 10, MT_MAP_FILE, MT_MAP_WRITE, 2));

	ck_assert_int_eq(charged[1][MT_ANON], 20);
	ck_assert_int_eq(charged[2][MT_FILE], 10);
	ck_assert_uint_eq(map.nr, 3);
	anon(0, 30, 1);
	ck_assert_uint_eq(map.nr, 1);
	ck_assert_int_eq(charged[2][MT_FILE], 0);
}
END_TEST

START_TEST(once_writable_stays_charged)
{
	insert(make(0, 100, MT_MAP_ANON, MT_MAP_NONE, 1));
	protect(10, 20, MT_MAP_WRITE);
	ck_assert_int_eq(charged[1][MT_ANON], 20);

	protect(0, 100, 0);
	ck_assert_int_eq(charged[1][MT_ANON], 20);
	protect(0, 20, MT_MAP_WRITE);
	ck_assert_int_eq(charged[1][MT_ANON], 30);
	punch(5, 10);
	ck_assert_int_eq(charged[1][MT_ANON], 20);
}
END_TEST

START_TEST(protection_charges_neither_noreserve_nor_huge_nor_shared)
{
	insert(make(0, 10, MT_MAP_ANON, MT_MAP_NORESERVE, 1));
	insert(make(10, 10, MT_MAP_ANON, MT_MAP_HUGETLB, 1));
	insert(make(20, 10, MT_MAP_SHARED_FILE, 0, 1));
	shared(30, 10, 5, 0, 1);
	protect(0, 40, 0);
	protect(0, 40, MT_MAP_WRITE);

	ck_assert_int_eq(charged[1][MT_ANON], 0);
	ck_assert_int_eq(charged[1][MT_FILE], 0);
	ck_assert_int_eq(charged[1][MT_SHMEM], 10);
}
END_TEST

START_TEST(the_cost_of_protection_is_what_it_charges)
{
	struct mt_mapping_bill cost = { .nr = 0, .spill = charge };

	anon(0, 10, 1);
	insert(make(10, 10, MT_MAP_ANON, 0, 1));
	insert(make(20, 10, MT_MAP_FILE, 0, 2));
	mt_mapping_protect_cost(&map, at(5), at(25), MT_MAP_WRITE, &cost);

	ck_assert_int_eq(charged[1][MT_ANON], 10);
	protect(5, 20, MT_MAP_WRITE);
	ck_assert_int_eq(charged[1][MT_ANON], 20);
	ck_assert_int_eq(charged[2][MT_FILE], 5);
	for (uint32_t i = 0; i < cost.nr; i++)
		ck_assert_int_eq(cost.entry[i].pages,
				 cost.entry[i].group == 1 ? 10 : 5);
}
END_TEST

START_TEST(what_was_taken_can_be_put_back)
{
	struct mt_mapping_taken taken;

	for (uint64_t i = 0; i < 10; i++)
		anon(i * 10, 5, 1);
	shared(100, 10, 3, 0, 2);
	mt_mapping_take(&map, at(2), at(105), &bill, &taken);
	ck_assert(mt_mapping_check(&map));
	ck_assert_uint_eq(map.nr, 2);
	mt_mapping_put_back(&map, &taken, &bill);
	pay();

	ck_assert(mt_mapping_check(&map));
	ck_assert_uint_eq(map.nr, 11);
	ck_assert_int_eq(charged[1][MT_ANON], 50);
	ck_assert_int_eq(charged[2][MT_SHMEM], 10);
}
END_TEST

START_TEST(a_take_survives_a_rebuild_in_between)
{
	struct mt_mapping_taken taken;

	for (uint64_t i = 0; i < 10; i++)
		anon(i * 10, 5, 1);
	mt_mapping_take(&map, at(0), at(100), &bill, &taken);
	mt_mapping_rebuild(&map);
	for (uint64_t i = 0; i < 20; i++)
		anon(200 + i * 10, 1, 2);
	mt_mapping_put_back(&map, &taken, &bill);
	pay();

	/* The first is a copy; the others' nodes were collected. */
	ck_assert(mt_mapping_check(&map));
	ck_assert_int_eq(charged[1][MT_ANON], 5);
	ck_assert_int_eq(charged[2][MT_ANON], 20);
}
END_TEST

static void move(uint64_t from, uint64_t old_pages, uint64_t to, uint64_t pages)
{
	struct mt_mapping_taken taken;

	mt_mapping_take(&map, at(from), at(from + old_pages), &bill, &taken);
	mt_mapping_land(&map, &taken, at(from), old_pages * PAGE, at(to),
			pages * PAGE, false, &bill);
	pay();
	ck_assert(mt_mapping_check(&map));
}

START_TEST(a_move_keeps_the_owner)
{
	struct mt_map_range range;

	anon(0, 10, 1);
	anon(100, 10, 2);
	move(0, 10, 100, 10);

	ck_assert_int_eq(charged[1][MT_ANON], 10);
	ck_assert_int_eq(charged[2][MT_ANON], 0);
	ck_assert(mt_mapping_find(&map, 0, &range));
	ck_assert_uint_eq(range.start, at(100));
	ck_assert_uint_eq(range.group, 1);
}
END_TEST

START_TEST(a_move_of_the_middle_grows_and_shrinks)
{
	anon(0, 30, 1);
	move(10, 10, 100, 15);
	ck_assert_int_eq(charged[1][MT_ANON], 20 + 15);

	move(100, 15, 100, 4);
	ck_assert_int_eq(charged[1][MT_ANON], 20 + 4);
	move(20, 10, 20, 12);
	ck_assert_int_eq(charged[1][MT_ANON], 20 + 4 + 2);
	/* Nothing is known there. */
	move(300, 10, 400, 20);
	ck_assert_int_eq(charged[1][MT_ANON], 26);
}
END_TEST

START_TEST(several_records_move_together)
{
	anon(0, 5, 1);
	insert(make(5, 5, MT_MAP_FILE, MT_MAP_WRITE, 2));
	shared(10, 5, 4, 0, 3);
	move(2, 12, 50, 12);

	ck_assert_int_eq(charged[1][MT_ANON], 5);
	ck_assert_int_eq(charged[2][MT_FILE], 5);
	ck_assert_int_eq(charged[3][MT_SHMEM], 5);
	ck_assert_uint_eq(map.nr, 5);
}
END_TEST

START_TEST(a_copy_of_private_memory_is_charged_again)
{
	anon(0, 10, 1);
	mt_mapping_copy(&map, at(0), 10 * PAGE, at(50), 10 * PAGE, false,
			&bill);
	pay();

	ck_assert_int_eq(charged[1][MT_ANON], 20);
}
END_TEST

START_TEST(a_second_view_of_an_object_costs_nothing)
{
	shared(0, 10, 6, 0, 1);
	shared(20, 10, 6, 0, 2);
	shared(40, 10, 6, 5, 2);
	/* Ten pages are the first group's, five more the second's. */
	ck_assert_int_eq(charged[1][MT_SHMEM], 10);
	ck_assert_int_eq(charged[2][MT_SHMEM], 5);

	/* The first group pays until the last view of a page goes. */
	punch(0, 10);
	ck_assert_int_eq(charged[1][MT_SHMEM], 10);
	punch(20, 10);
	ck_assert_int_eq(charged[1][MT_SHMEM], 5);
	punch(40, 10);
	ck_assert_int_eq(charged[1][MT_SHMEM], 0);
	ck_assert_int_eq(charged[2][MT_SHMEM], 0);
}
END_TEST

START_TEST(an_object_of_length_zero_is_mapped_again)
{
	shared(0, 10, 6, 3, 1);
	mt_mapping_copy(&map, at(2), 0, at(50), 12 * PAGE, false, &bill);
	pay();

	/* Offsets 5 to 17; those below 13 are paid. */
	ck_assert_int_eq(charged[1][MT_SHMEM], 14);
	ck_assert(mt_mapping_check(&map));
}
END_TEST

START_TEST(object_cost_is_what_is_not_covered)
{
	shared(0, 10, 6, 10, 1);
	shared(20, 10, 6, 30, 1);
	shared(40, 10, 5, 0, 1);

	ck_assert_int_eq(mt_mapping_object_cost(&map, 6, 0, 50 * PAGE), 30);
	ck_assert_int_eq(mt_mapping_object_cost(&map, 6, 15 * PAGE, 10 * PAGE),
			 5);
	ck_assert_int_eq(mt_mapping_object_cost(&map, 7, 0, 50 * PAGE), 50);
}
END_TEST

START_TEST(regrouping_shared_memory_takes_every_view_along)
{
	shared(0, 10, 6, 0, 1);
	shared(20, 10, 6, 5, 2);
	anon(50, 4, 1);
	mt_mapping_regroup(&map, at(0), at(60), 3, &bill);
	pay();

	ck_assert(mt_mapping_check(&map));
	ck_assert_int_eq(charged[1][MT_SHMEM] + charged[2][MT_SHMEM], 0);
	ck_assert_int_eq(charged[3][MT_SHMEM], 15);
	ck_assert_int_eq(charged[3][MT_ANON], 4);
	punch(0, 100);
	ck_assert_int_eq(charged[3][MT_SHMEM] + charged[3][MT_ANON], 0);
}
END_TEST

START_TEST(more_groups_than_a_bill_holds_spill)
{
	/* Kinds and groups together make more than eight entries. */
	static const uint32_t types[] = { MT_MAP_ANON, MT_MAP_FILE,
					  MT_MAP_BRK };

	for (uint32_t i = 0; i < 12; i++)
		insert(make(i, 1, types[i % 3], MT_MAP_WRITE, i / 3));
	mt_mapping_punch(&map, at(0), at(12), &bill);
	ck_assert_uint_eq(bill.nr, MT_BILL_ENTRIES);
	pay();

	for (uint32_t g = 0; g < GROUPS; g++) {
		for (int k = 0; k < MT_NR_KINDS; k++)
			ck_assert_int_eq(charged[g][k], 0);
	}
}
END_TEST

static struct mt_map_header *file;

static void name_mirror(void)
{
	snprintf(path, sizeof(path), "/dev/shm/check-mapping.%d",
		 (int)getpid());
	unlink(path);
}

static void open_mirror(void)
{
	uint32_t mapped;

	name_mirror();
	file = mt_mapping_create_file(path, PAGE, &mapped);
	ck_assert_ptr_nonnull(file);
	mt_mapping_publish(&map, file, mapped);
}

START_TEST(the_mirror_shows_every_record)
{
	struct mt_map_range range;
	const char *seen;
	const struct mt_map_header *header;
	uint64_t sum = 0;
	uint32_t mapped;
	struct stat st;
	FILE *in;

	scatter(0, 300);
	open_mirror();
	ck_assert_ptr_null(mt_mapping_create_file(path, PAGE, &mapped));
	scatter(300, 2700);
	punch(0, 1000);

	in = fopen(path, "r");
	ck_assert_ptr_nonnull(in);
	ck_assert_int_eq(fstat(fileno(in), &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0600);
	seen = mmap(NULL, 1 << 20, PROT_READ, MAP_SHARED, fileno(in), 0);
	fclose(in);
	ck_assert_ptr_ne(seen, MAP_FAILED);
	header = (const struct mt_map_header *)seen;
	ck_assert(header->magic == MT_MAP_MAGIC);
	ck_assert_uint_eq(header->missing, 0);
	for (uint32_t i = 0; i < header->high; i++) {
		if (mt_map_slot_read(
			    (const struct mt_map_slot *)(seen +
							 header->header_size) +
				    i,
			    &range))
			sum += (range.end - range.start) / PAGE;
	}
	ck_assert_uint_eq(sum, 2500);
	munmap((void *)(uintptr_t)seen, 1 << 20);
}
END_TEST

/* Check writes to a file itself: the limit holds for this call only. */
static struct mt_map_header *create_limited(rlim_t bytes, uint32_t *ret_mapped)
{
	struct rlimit limit = { bytes, RLIM_INFINITY };
	struct mt_map_header *created;

	setrlimit(RLIMIT_FSIZE, &limit);
	created = mt_mapping_create_file(path, PAGE, ret_mapped);
	limit.rlim_cur = RLIM_INFINITY;
	setrlimit(RLIMIT_FSIZE, &limit);
	return created;
}

START_TEST(a_file_size_limit_costs_the_mirror_only)
{
	uint32_t mapped;

	name_mirror();
	ck_assert_ptr_null(create_limited(8192, &mapped));
	file = create_limited(65536, &mapped);
	ck_assert_ptr_nonnull(file);
	mt_mapping_publish(&map, file, mapped);
	scatter(0, 3000);

	ck_assert_int_eq(charged[1][MT_ANON], 3000);
	ck_assert_uint_gt(map.file->missing, 0);
}
END_TEST

START_TEST(sixty_thousand_records)
{
	for (uint64_t i = 0; i < 60000; i++) {
		struct mt_map_range range = make((i * 7919) % 60000 * 2, 1,
						 MT_MAP_ANON, MT_MAP_WRITE, 1);

		if (!mt_mapping_insert(&map, &range, &bill))
			ck_abort_msg("record %d", (int)i);
	}
	pay();
	ck_assert_uint_eq(map.nr, 60000);
	ck_assert(mt_mapping_check(&map));
	mt_mapping_rebuild(&map);
	ck_assert(mt_mapping_check(&map));
	for (uint64_t i = 0; i < 60000; i++)
		mt_mapping_punch(&map, at(i * 2), at(i * 2 + 1), &bill);
	pay();

	ck_assert_int_eq(charged[1][MT_ANON], 0);
	ck_assert_uint_eq(map.nr, 0);
}
END_TEST

/*
 * The model: an array of pages.  A shared page's payer is the group of any
 * page that shows the same; what is charged is counted from scratch.
 */
#define PAGES 160

static struct mt_map_range model[PAGES]; /* of each page; type 0: none */

static uint64_t seed;
static const uint8_t *input; /* to be used up first, by a fuzzer */
static const uint8_t *input_end;

static uint32_t roll(uint32_t n)
{
	if (input < input_end)
		return *input++ % n;
	seed = seed * UINT64_C(6364136223846793005) +
	       UINT64_C(1442695040888963407);
	return (uint32_t)(seed >> 33) % n;
}

static bool by_object(const struct mt_map_range *page)
{
	return page->type == MT_MAP_SHMEM && !(page->state & MT_MAP_HUGETLB);
}

static bool model_accounted(uint32_t type, uint32_t state)
{
	if (type == MT_MAP_SHMEM)
		return !(state & MT_MAP_HUGETLB);
	return (type == MT_MAP_ANON || type == MT_MAP_FILE ||
		type == MT_MAP_BRK) &&
	       (state & MT_MAP_WRITE) &&
	       !(state & (MT_MAP_NORESERVE | MT_MAP_HUGETLB));
}

static void model_put(uint32_t page, struct mt_map_range value)
{
	for (int i = 0; i < PAGES && by_object(&value); i++) {
		if (by_object(&model[i]) && model[i].object == value.object &&
		    model[i].offset == value.offset)
			value.group = model[i].group;
	}
	model[page] = value;
}

static void model_clear(uint32_t page, uint32_t n)
{
	for (uint32_t i = page; i < page + n; i++)
		model[i].type = MT_MAP_FREE;
}

/* Check logs each of its assertions: too slow for one per page. */
#define SAME(a, b)                                                             \
	do {                                                                   \
		if ((a) != (b))                                                \
			ck_abort_msg("step %d: %s: %lld, not %lld", step, #a,  \
				     (long long)(a), (long long)(b));          \
	} while (0)

static void compare(int step)
{
	int64_t sum[GROUPS][MT_NR_KINDS] = { { 0 } };
	uint32_t runs = 0;

	for (int i = 0; i < PAGES; i++) {
		const struct mt_map_range *page = &model[i];
		struct mt_map_range range;
		bool first = true;

		if (mt_mapping_find(&map, at((uint64_t)i), &range) &&
		    range.start <= at((uint64_t)i)) {
			SAME(range.type, page->type);
			SAME(range.state, page->state);
			SAME(range.group, page->group);
			SAME(range.object, page->object);
			if (range.object)
				SAME(range.offset + at((uint64_t)i) -
					     range.start,
				     page->offset);
		} else {
			SAME(page->type, MT_MAP_FREE);
			continue;
		}
		if (!i || model[i - 1].type != page->type ||
		    model[i - 1].state != page->state ||
		    model[i - 1].group != page->group ||
		    model[i - 1].object != page->object ||
		    (page->object &&
		     model[i - 1].offset + PAGE != page->offset))
			runs++;
		if (!(page->state & MT_MAP_ACCOUNT))
			continue;
		for (int j = 0; j < i && by_object(page); j++) {
			if (by_object(&model[j]) &&
			    model[j].object == page->object &&
			    model[j].offset == page->offset)
				first = false;
		}
		if (first)
			sum[page->group][mt_mapping_kind(page->type)]++;
	}
	SAME(map.nr, runs);
	for (int g = 0; g < GROUPS; g++) {
		for (int k = 0; k < MT_NR_KINDS; k++)
			SAME(charged[g][k], sum[g][k]);
	}
	ck_assert(mt_mapping_check(&map));
}

static void random_insert(uint32_t page, uint32_t n)
{
	static const uint32_t types[] = { MT_MAP_ANON,  MT_MAP_ANON,
					  MT_MAP_FILE,  MT_MAP_SHMEM,
					  MT_MAP_SHMEM, MT_MAP_SHARED_FILE,
					  MT_MAP_DEVICE };
	static const uint32_t states[] = { 0,
					   MT_MAP_WRITE,
					   MT_MAP_WRITE,
					   MT_MAP_NONE,
					   MT_MAP_WRITE | MT_MAP_NORESERVE,
					   MT_MAP_WRITE | MT_MAP_HUGETLB };
	struct mt_map_range range =
		make(page, n, types[roll(7)], states[roll(6)], roll(GROUPS));

	if (range.type != MT_MAP_ANON) {
		range.object = 1 + roll(3);
		range.offset = roll(60) * PAGE;
	}
	ck_assert(mt_mapping_insert(&map, &range, &bill));
	pay();
	model_clear(page, n);
	if (model_accounted(range.type, range.state))
		range.state |= MT_MAP_ACCOUNT;
	for (uint32_t i = 0; i < n; i++) {
		model_put(page + i, range);
		if (range.object)
			range.offset += PAGE;
	}
}

static void random_protect(uint32_t page, uint32_t n)
{
	static const uint32_t states[] = { 0, MT_MAP_WRITE, MT_MAP_NONE };
	uint32_t state = states[roll(3)];

	mt_mapping_protect(&map, at(page), at(page + n), state, &bill);
	pay();
	for (uint32_t i = page; i < page + n; i++) {
		if (!model[i].type)
			continue;
		model[i].state &= ~(MT_MAP_WRITE | MT_MAP_NONE);
		model[i].state |= state;
		if (model_accounted(model[i].type, model[i].state))
			model[i].state |= MT_MAP_ACCOUNT;
	}
}

static void random_move(uint32_t page, uint32_t n)
{
	struct mt_map_range old[PAGES];
	uint32_t len = 1 + roll(30);
	uint32_t to = roll(PAGES - 30);

	/* In place, when its growth is free; or anywhere else. */
	if (roll(2))
		to = page;
	else if (to < page + n && page < to + len)
		return;
	if (to + len > PAGES)
		return;
	move(page, n, to, len);
	memcpy(old, model, sizeof(old));
	model_clear(page, n);
	model_clear(to, len);
	for (uint32_t i = 0; i < len; i++) {
		struct mt_map_range value = old[page + MT_MIN(i, n - 1)];

		if (!value.type)
			continue;
		if (i >= n && value.object)
			value.offset += (i - (n - 1)) * PAGE;
		model_put(to + i, value);
	}
}

static void random_copy(uint32_t page, uint32_t n)
{
	uint32_t to = roll(PAGES);
	bool sparse = roll(2);

	if (to + n > PAGES || (to < page + n && page < to + n))
		return;
	mt_mapping_copy(&map, at(page), n * PAGE, at(to), n * PAGE, sparse,
			&bill);
	pay();
	if (!sparse)
		model_clear(to, n);
	for (uint32_t i = 0; i < n; i++) {
		if (model[page + i].type)
			model[to + i].type = MT_MAP_FREE;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (model[page + i].type)
			model_put(to + i, model[page + i]);
	}
}

static void random_regroup(uint32_t page, uint32_t n)
{
	uint32_t group = roll(GROUPS);

	mt_mapping_regroup(&map, at(page), at(page + n), group, &bill);
	pay();
	for (uint32_t i = page; i < page + n; i++) {
		if (!model[i].type)
			continue;
		model[i].group = group;
		for (int j = 0; j < PAGES && by_object(&model[i]); j++) {
			if (by_object(&model[j]) &&
			    model[j].object == model[i].object &&
			    model[j].offset == model[i].offset)
				model[j].group = group;
		}
	}
}

static void one_step(int k)
{
	uint32_t page = roll(PAGES - 1);
	uint32_t pages = 1 + roll(roll(4) ? 8 : PAGES / 2);
	struct mt_mapping_taken taken;

	pages = MT_MIN(pages, PAGES - page);
	switch (roll(16)) {
	case 0 ... 5:
		random_insert(page, pages);
		break;
	case 6 ... 7:
		punch(page, pages);
		model_clear(page, pages);
		break;
	case 8 ... 10:
		random_protect(page, pages);
		break;
	case 11:
		random_move(page, pages);
		break;
	case 12:
		random_copy(page, pages);
		break;
	case 13:
		random_regroup(page, pages);
		break;
	case 14:
		mt_mapping_take(&map, at(page), at(page + pages), &bill,
				&taken);
		ck_assert(mt_mapping_check(&map));
		if (roll(2)) {
			mt_mapping_put_back(&map, &taken, &bill);
		} else {
			mt_mapping_forget(&map, &taken);
			model_clear(page, pages);
		}
		pay();
		break;
	case 15:
		mt_mapping_rebuild(&map);
		break;
	}
	compare(k);
}

#ifdef MT_FUZZ
/* What to do next is in the bytes; see `make fuzz`. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	input = bytes;
	input_end = bytes + size;
	setup();
	memset(model, 0, sizeof(model));
	for (int k = 0; input < input_end; k++)
		one_step(k);
	teardown();
	return 0;
}

#define main check_main
#endif

START_TEST(random_operations_agree_with_the_model)
{
	const char *times = getenv("CHECK_MAPPING_OPS");
	int n = times ? atoi(times) : 4000;

	seed = (uint64_t)_i + 1;
	memset(model, 0, sizeof(model));
	if (_i % 4 == 0)
		open_mirror();
	for (int k = 0; k < n; k++)
		one_step(k);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("mapping");
	TCase *tcase = tcase_create("operations");
	TCase *model_case = tcase_create("model");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, private_and_writable_is_charged);
	tcase_add_test(tcase, what_the_kernel_does_not_account_is_only_tracked);
	tcase_add_test(tcase, each_kind_is_charged_as_itself);
	tcase_add_test(tcase, a_hole_leaves_both_sides);
	tcase_add_test(tcase, a_sweep_removes_whole_and_parts);
	tcase_add_test(tcase,
		       neighbours_that_continue_each_other_are_one_record);
	tcase_add_test(tcase, a_fixed_mapping_replaces_what_lies_there);
	tcase_add_test(tcase, once_writable_stays_charged);
	tcase_add_test(
		tcase,
		protection_charges_neither_noreserve_nor_huge_nor_shared);
	tcase_add_test(tcase, the_cost_of_protection_is_what_it_charges);
	tcase_add_test(tcase, what_was_taken_can_be_put_back);
	tcase_add_test(tcase, a_take_survives_a_rebuild_in_between);
	tcase_add_test(tcase, a_move_keeps_the_owner);
	tcase_add_test(tcase, a_move_of_the_middle_grows_and_shrinks);
	tcase_add_test(tcase, several_records_move_together);
	tcase_add_test(tcase, a_copy_of_private_memory_is_charged_again);
	tcase_add_test(tcase, a_second_view_of_an_object_costs_nothing);
	tcase_add_test(tcase, an_object_of_length_zero_is_mapped_again);
	tcase_add_test(tcase, object_cost_is_what_is_not_covered);
	tcase_add_test(tcase, regrouping_shared_memory_takes_every_view_along);
	tcase_add_test(tcase, more_groups_than_a_bill_holds_spill);
	tcase_add_test(tcase, the_mirror_shows_every_record);
	tcase_add_test(tcase, a_file_size_limit_costs_the_mirror_only);
	tcase_add_test(tcase, sixty_thousand_records);
	suite_add_tcase(suite, tcase);
	tcase_add_checked_fixture(model_case, setup, teardown);
	tcase_add_loop_test(model_case, random_operations_agree_with_the_model,
			    0, 12);
	tcase_set_timeout(model_case, 120);
	suite_add_tcase(suite, model_case);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
