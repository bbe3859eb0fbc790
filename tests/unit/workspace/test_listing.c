#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "providers/base/buf.h"
#include "tests/unit/workspace/fixture.h"

static struct fixture f;
static const struct pai_ws_at ROOT = {.path = ""};

static void open_it(void)
{
	fixture_open(&f, NULL);
}

static void close_it(void)
{
	fixture_close(&f);
}

TestSuite(listing, .init = open_it, .fini = close_it, .timeout = 60);

static size_t list_all(uint64_t handle, size_t max, bool names_only, size_t *with_attr)
{
	struct pai_ws_req req = {
	    .op = PAI_WS_READDIR,
	    .handle = handle,
	    .in.list = {.max = max, .names_only = names_only},
	};
	size_t count = 0;

	*with_attr = 0;
	do {
		cr_assert_eq(run(&f, &req), 0);
		cr_assert(req.out.count > 0 || req.out.end);
		for (size_t i = 0; i < req.out.count; i++) {
			*with_attr += req.out.entries[i].has_attr;
			req.in.list.cookie = req.out.entries[i].cookie;
			cr_assert(*req.out.entries[i].name != '.');
			if (!names_only && count == 0 && i == 0) {
				/* Gone while the walk goes on: the others stay where they are. */
				(void)unlinkat(f.dir_fd, req.out.entries[i].name, 0);
			}
		}
		count += req.out.count;
		max = req.out.end;
		pai_ws_req_fini(&req);
	} while (!max);
	return count;
}

Test(listing, is_of_one_moment)
{
	struct pai_ws_req req = {.op = PAI_WS_OPENDIR, .at = ROOT};
	size_t with_attr;
	char name[16];

	for (int i = 0; i < 2500; i++) {
		(void)snprintf(name, sizeof(name), "file%d", i);
		put_file(&f, name, "");
	}
	cr_assert_eq(run(&f, &req), 0);
	cr_assert(S_ISDIR(req.attr.mode));
	cr_assert_eq(list_all(req.out.handle, 100, false, &with_attr), 2500);
	cr_assert_eq(with_attr, 2500);
	cr_assert_eq(list_all(req.out.handle, SIZE_MAX, true, &with_attr), 2499);
	cr_assert_eq(with_attr, 0);
	cr_assert_eq(release(&f, req.out.handle), 0);
}

static bool *place(bool *seen, const char *name)
{
	return &seen[strtoul(name + 1, NULL, 10)];
}

/* The kernel's own listing is dropped in the middle of a walk: the rest is asked of a handle that
 * has listed nothing. */
Test(listing, walk_goes_on_in_another_snapshot)
{
	struct pai_ws_req open1 = {.op = PAI_WS_OPENDIR, .at = ROOT}, open2 = open1;
	struct pai_ws_req head = {
	    .op = PAI_WS_READDIR, .in.list = {.max = 150, .names_only = true}};
	struct pai_ws_req tail = {.op = PAI_WS_READDIR, .in.list = {.max = 4000}};
	char name[16];
	bool seen[300] = {false};

	for (int i = 0; i < 300; i++) {
		(void)snprintf(name, sizeof(name), "f%d", i);
		put_file(&f, name, "");
	}
	cr_assert_eq(run(&f, &open1), 0);
	head.handle = open1.out.handle;
	cr_assert_eq(run(&f, &head), 0);
	cr_assert_eq(head.out.count, 150);
	for (size_t i = 0; i < 150; i++) {
		*place(seen, head.out.entries[i].name) = true;
		(void)unlinkat(f.dir_fd, head.out.entries[i].name, 0);
	}
	put_file(&f, "new", "");
	cr_assert_eq(run(&f, &open2), 0);
	tail.handle = open2.out.handle;
	tail.in.list.cookie = head.out.entries[149].cookie;
	cr_assert_eq(run(&f, &tail), 0);
	for (size_t i = 0; i < tail.out.count; i++) {
		if (strcmp(tail.out.entries[i].name, "new") != 0) {
			cr_assert_not(*place(seen, tail.out.entries[i].name));
			*place(seen, tail.out.entries[i].name) = true;
		}
	}
	for (int i = 0; i < 300; i++) {
		cr_assert(seen[i], "f%d", i);
	}
	pai_ws_req_fini(&head);
	pai_ws_req_fini(&tail);
}

Test(listing, entry_that_vanished_has_no_attributes)
{
	struct pai_ws_req req = {.op = PAI_WS_OPENDIR, .at = ROOT};
	struct pai_ws_req list = {.op = PAI_WS_READDIR, .in.list = {.max = 1}};

	put_file(&f, "a", "");
	put_file(&f, "b", "");
	cr_assert_eq(run(&f, &req), 0);
	list.handle = req.out.handle;
	cr_assert_eq(run(&f, &list), 0);
	list.in.list.cookie = list.out.entries[0].cookie;
	pai_ws_req_fini(&list);
	cr_assert_eq(unlinkat(f.dir_fd, "a", 0), 0);
	cr_assert_eq(unlinkat(f.dir_fd, "b", 0), 0);
	cr_assert_eq(run(&f, &list), 0);
	cr_assert_eq(list.out.count, 1);
	cr_assert(!list.out.entries[0].has_attr);
	cr_assert(list.out.end);
	pai_ws_req_fini(&list);
}

static bool skips_odd(const struct pai_ws_req *req, const char *name)
{
	(void)req;
	return strtoul(name + 1, NULL, 10) % 2;
}

Test(listing, skips_whose_attributes_are_not_wanted)
{
	struct pai_ws_req open = {.op = PAI_WS_OPENDIR, .at = ROOT};
	struct pai_ws_req req = {.op = PAI_WS_READDIR, .in.list = {.max = 100, .skips = skips_odd}};
	char name[16];

	for (int i = 0; i < 10; i++) {
		(void)snprintf(name, sizeof(name), "f%d", i);
		put_file(&f, name, "");
	}
	cr_assert_eq(run(&f, &open), 0);
	req.handle = open.out.handle;
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(req.out.count, 10);
	for (size_t i = 0; i < req.out.count; i++) {
		const struct pai_ws_entry *e = &req.out.entries[i];

		cr_assert_eq(e->is_skipped, skips_odd(&req, e->name));
		cr_assert_eq(e->has_attr, !e->is_skipped);
	}
	pai_ws_req_fini(&req);
	cr_assert_eq(release(&f, open.out.handle), 0);
}
