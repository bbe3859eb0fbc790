/* What a client was told, and what of it a barrier compares. */
#include "providers/helper/ws_told.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "providers/wire/ws_msg.h"

static struct pai_ws_told *t;
static char found_name[64];
static int found_count;

static void set_up(void)
{
	struct pai_ws_req watch = {
	    .op = PAI_WS_WATCH, .at = {.path = "d"}, .attr = {.id = {5, 6, 7}, .mode = S_IFDIR}};

	t = pai_ws_told_new();
	pai_ws_told_reply(t, &watch);
	found_count = 0;
}

static void tear_down(void)
{
	pai_ws_told_free(t);
}

TestSuite(ws_told, .init = set_up, .fini = tear_down);

static struct pai_ws_attr attr_of(int64_t ctime_ns)
{
	return (struct pai_ws_attr){
	    .id = {1, 2, 3}, .mode = S_IFREG, .nlink = 1, .ctime_ns = ctime_ns};
}

static void tell(const char *name, int64_t ctime_ns)
{
	struct pai_ws_req req = {
	    .op = PAI_WS_LOOKUP, .at = {"d", {5, 6, 7}}, .name = name, .attr = attr_of(ctime_ns)};

	pai_ws_told_reply(t, &req);
}

static void on_found(void *arg, const struct pai_ws_push *push)
{
	(void)arg;
	(void)snprintf(found_name, sizeof(found_name), "%s", push->name);
	found_count++;
}

/* As a server would whose files all have this ctime; how many were compared. */
static size_t compare(int64_t ctime_ns, bool *all)
{
	struct pai_ws_req *req;
	size_t count = 0;

	*all = pai_ws_told_begin(t);
	while ((req = pai_ws_told_next(t, all)) != NULL) {
		cr_assert_str_eq(req->at.path, "d");
		count += req->in.known.count;
		for (size_t i = 0; i < req->in.known.count; i++) {
			req->in.known.entries[i].has_attr = ctime_ns > 0;
			req->in.known.entries[i].attr = attr_of(ctime_ns);
		}
		pai_ws_told_compared(t, req, all, on_found, NULL);
	}
	return count;
}

Test(ws_told, what_differs_is_found_once)
{
	bool all;

	tell("f", 10);
	cr_assert_eq(compare(10, &all), 1u);
	cr_assert(all);
	cr_assert_eq(found_count, 0);
	cr_assert_eq(compare(11, &all), 1u);
	cr_assert_eq(found_count, 1);
	cr_assert_str_eq(found_name, "f");
	cr_assert_eq(compare(11, &all), 1u);
	cr_assert_eq(found_count, 1);
	cr_assert_eq(compare(0, &all), 1u, "gone");
	cr_assert_eq(compare(11, &all), 0u);
	cr_assert_eq(found_count, 1);
}

Test(ws_told, a_push_is_told_too)
{
	struct pai_ws_push push = {.dir = {5, 6, 7},
	    .name = "f",
	    .flags = PAI_WS_PUSH_ATTR,
	    .exists = true,
	    .attr = attr_of(20)};
	bool all;

	tell("f", 10);
	pai_ws_told_push(t, &push);
	cr_assert_eq(compare(20, &all), 1u);
	cr_assert_eq(found_count, 0);
	push.exists = false;
	pai_ws_told_push(t, &push);
	cr_assert_eq(compare(20, &all), 0u);
}

Test(ws_told, an_unwatched_directory_is_not_remembered)
{
	struct pai_ws_req unwatch = {.op = PAI_WS_UNWATCH, .at.id = {5, 6, 7}};
	bool all;

	tell("f", 10);
	pai_ws_told_reply(t, &unwatch);
	cr_assert_eq(compare(20, &all), 0u);
	cr_assert(all, "nobody believes anything of it");
	tell("f", 10);
	cr_assert_eq(compare(20, &all), 0u);
}

Test(ws_told, too_much_is_forgotten_and_said_to_be)
{
	char name[32];
	bool all;

	for (unsigned i = 0; i < PAI_WS_TOLD_MAX; i++) {
		(void)snprintf(name, sizeof(name), "%u", i);
		tell(name, 10);
	}
	cr_assert_eq(compare(10, &all), PAI_WS_TOLD_MAX);
	cr_assert(all);
	tell("one more", 10);
	cr_assert_eq(pai_ws_told_count(t), 1u);
	cr_assert_eq(compare(10, &all), 1u);
	cr_assert_not(all);
	cr_assert_eq(compare(10, &all), 1u);
	cr_assert(all, "told anew, it is remembered");
}
