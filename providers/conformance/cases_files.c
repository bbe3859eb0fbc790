#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "providers/base/auto.h"
#include "providers/base/printable.h"
#include "providers/conformance/conf.h"

#define MIB (1u << 20)
#define REPLACEMENTS 40
#define READS_BESIDE 100
#define REPLACE_MS 10000 /* a slow backend: as many as it manages */

/* --- round trips --- */

static void round_trip(struct pai_conf *c, const char *path, const void *data, size_t len)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);

	if (sb && pai_conf_write(c, sb, path, data, len)) {
		(void)!pai_conf_holds(c, sb, path, data, len);
	}
}

static void text_comes_back(struct pai_conf *c)
{
	round_trip(c, "text", "line 1\nline 2\r\n", 15);
}

static void every_byte_comes_back(struct pai_conf *c)
{
	char bytes[512];

	for (size_t i = 0; i < sizeof(bytes); i++) {
		bytes[i] = (char)(i * 255 + i / 256);
	}
	round_trip(c, "bytes", bytes, sizeof(bytes));
}

static void an_empty_file_comes_back(struct pai_conf *c)
{
	round_trip(c, "empty", "", 0);
}

static void a_mebibyte_comes_back(struct pai_conf *c)
{
	pai_auto_free unsigned char *data = malloc(MIB);
	uint32_t x = 1;

	CONF_CHECK(c, data, "out of memory");
	for (size_t i = 0; i < MIB; i++) {
		x = x * 1664525 + 1013904223;
		data[i] = (unsigned char)(x >> 24);
	}
	round_trip(c, "big", data, MIB);
}

static void parents_are_made(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);

	if (sb && pai_conf_write(c, sb, "a/b/c/d/file", "x", 1) &&
	    pai_conf_holds(c, sb, "/workspace/a/b/c/d/file", "x", 1) &&
	    pai_conf_write(c, sb, "a/b/other", "y", 1)) {
		(void)!pai_conf_holds(c, sb, "a/b/c/d/file", "x", 1);
	}
}

static void a_shorter_text_replaces_the_whole(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);

	if (sb && pai_conf_write(c, sb, "f", "a long first text", 17) &&
	    pai_conf_write(c, sb, "f", "short", 5) && pai_conf_holds(c, sb, "f", "short", 5) &&
	    pai_conf_write(c, sb, "f", "", 0)) {
		(void)!pai_conf_holds(c, sb, "f", "", 0);
	}
}

static void odd_names_are_names(struct pai_conf *c)
{
	static const char *const names[] = {"a b", "-rf", "'quote\"", "$HOME", "new\nline",
	    "\xc3\xa4\xe2\x82\xac", "*?[x]", "back\\slash", ".hidden", "~", "%41", "a;b&c|d"};
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	pai_auto_dir_list struct pai_dir_list list = {0};
	struct pai_err err = PAI_ERR_INIT;
	bool found = false;

	if (!sb) {
		return;
	}
	for (size_t i = 0; i < PAI_COUNT(names); i++) {
		char path[64];

		(void)snprintf(path, sizeof(path), "odd/%s", names[i]);
		if (!pai_conf_write(c, sb, path, names[i], strlen(names[i])) ||
		    !pai_conf_holds(c, sb, path, names[i], strlen(names[i]))) {
			return;
		}
	}
	CONF_OK(
	    c, pai_sandbox_list_dir(sb, "odd", CONF_CALL(c), &found, &list, &err), err, "list_dir");
	CONF_CHECK(c, found && list.count == PAI_COUNT(names), "%zu names are listed, %zu expected",
	    list.count, PAI_COUNT(names));
	for (size_t i = 0; i < PAI_COUNT(names); i++) {
		size_t n = 0;

		while (n < list.count && strcmp(list.items[n].name, names[i]) != 0) {
			n++;
		}
		CONF_CHECK(c, n < list.count, "'%s' isn't listed", pai_printable(names[i]));
	}
}

static void a_name_of_255_bytes_is_a_name(struct pai_conf *c)
{
	char name[256];

	memset(name, 'n', 255);
	name[255] = '\0';
	round_trip(c, name, "x", 1);
}

/* --- paths --- */

static void relative_paths_are_below_the_workspace(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);

	if (sb && pai_conf_write(c, sb, "dir/f", "x", 1) &&
	    pai_conf_holds(c, sb, "/workspace/dir/f", "x", 1) &&
	    pai_conf_holds(c, sb, "./dir/./f", "x", 1) &&
	    pai_conf_holds(c, sb, "dir/../dir//f", "x", 1) &&
	    pai_conf_holds(c, sb, "../workspace/dir/f", "x", 1)) {
		(void)!pai_conf_holds(c, sb, "/../../workspace/dir/f", "x", 1);
	}
}

/* Outside the workspace is the provider's to serve or to refuse, not to confuse with it. */
static void dotdot_leaves_the_workspace(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	pai_auto_buf struct pai_buf data = PAI_BUF_INIT(MIB);
	struct pai_err err = PAI_ERR_INIT;
	bool found = false;
	int r;

	if (!sb || !pai_conf_write(c, sb, "pai-inside", "x", 1)) {
		return;
	}
	r = pai_sandbox_read_file(sb, "../pai-inside", MIB, CONF_CALL(c), &found, &data, &err);
	CONF_CHECK(c, r == 0 || err.code == PAI_E_INPUT,
	    "a path outside the workspace: expected not found or %s, got %s",
	    pai_errcode_name(PAI_E_INPUT), pai_errcode_name(err.code));
	CONF_CHECK(c, r < 0 || !found, "'..' was cut off: a path outside gave a file inside");
}

/* --- what isn't there, what isn't a file --- */

static void a_missing_file_is_not_found(struct pai_conf *c)
{
	static const char *const paths[] = {"none", "none/below", "/workspace/none", "file/below"};
	struct pai_sandbox *sb = pai_conf_sandbox(c);

	if (!sb || !pai_conf_write(c, sb, "file", "x", 1)) {
		return;
	}
	for (size_t i = 0; i < PAI_COUNT(paths); i++) {
		bool found = true;

		if (!pai_conf_exists(c, sb, paths[i], &found)) {
			return;
		}
		CONF_CHECK(c, !found, "'%s' is said to be a file", paths[i]);
	}
}

static void a_directory_is_no_file(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	pai_auto_buf struct pai_buf data = PAI_BUF_INIT(MIB);
	struct pai_err err = PAI_ERR_INIT;
	bool found = false;

	if (!sb || !pai_conf_write(c, sb, "dir/f", "x", 1)) {
		return;
	}
	CONF_ERROR(c, pai_sandbox_read_file(sb, "dir", MIB, CONF_CALL(c), &found, &data, &err), err,
	    PAI_E_INPUT, "read of a directory");
	CONF_ERROR(c, pai_sandbox_write_file(sb, "dir", "x", 1, CONF_CALL(c), &err), err,
	    PAI_E_INPUT, "write to a directory");
	CONF_ERROR(c, pai_sandbox_write_file(sb, "/workspace", "x", 1, CONF_CALL(c), &err), err,
	    PAI_E_INPUT, "write to the workspace itself");
	err = (struct pai_err)PAI_ERR_INIT; /* or the last one could pass for this one's */
	CONF_ERROR(c, pai_sandbox_write_file(sb, "dir/f/below", "x", 1, CONF_CALL(c), &err), err,
	    PAI_E_INPUT, "write below a file");
	(void)!pai_conf_holds(c, sb, "dir/f", "x", 1);
}

/* --- limits --- */

static void expect_too_large(
    struct pai_conf *c, struct pai_sandbox *sb, const char *path, uint64_t limit)
{
	pai_auto_buf struct pai_buf data = PAI_BUF_INIT(SIZE_MAX / 2);
	struct pai_err err = PAI_ERR_INIT;
	bool found = false;

	CONF_ERROR(c, pai_sandbox_read_file(sb, path, limit, CONF_CALL(c), &found, &data, &err),
	    err, PAI_E_FILE_TOO_LARGE, "a file over the limit");
	CONF_CHECK(c, err.limit_bytes == limit, "the error says %u bytes, the limit was %u",
	    (unsigned)err.limit_bytes, (unsigned)limit);
	CONF_CHECK(c, data.len == 0, "bytes of a refused file were handed out");
}

static void expect_whole(
    struct pai_conf *c, struct pai_sandbox *sb, const char *path, uint64_t limit, size_t len)
{
	pai_auto_buf struct pai_buf data = PAI_BUF_INIT(SIZE_MAX / 2);
	struct pai_err err = PAI_ERR_INIT;
	bool found = false;

	CONF_OK(c, pai_sandbox_read_file(sb, path, limit, CONF_CALL(c), &found, &data, &err), err,
	    "a file at the limit");
	CONF_CHECK(c, found && data.len == len, "%zu bytes, %zu expected", data.len, len);
}

static void max_bytes_is_a_limit(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);

	if (sb && pai_conf_write(c, sb, "ten", "0123456789", 10) &&
	    pai_conf_write(c, sb, "empty", "", 0)) {
		expect_whole(c, sb, "ten", 10, 10);
		expect_whole(c, sb, "ten", 11, 10);
		expect_too_large(c, sb, "ten", 9);
	}
}

static void max_bytes_0_takes_the_empty_file_only(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);

	if (sb && pai_conf_write(c, sb, "one", "1", 1) && pai_conf_write(c, sb, "empty", "", 0)) {
		expect_whole(c, sb, "empty", 0, 0);
		expect_too_large(c, sb, "one", 0);
	}
}

/* --- directories --- */

static const struct pai_dir_item *item_of(const struct pai_dir_list *list, const char *name)
{
	for (size_t i = 0; i < list->count; i++) {
		if (strcmp(list->items[i].name, name) == 0) {
			return &list->items[i];
		}
	}
	return NULL;
}

static void list_dir_tells_names_and_types(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	pai_auto_dir_list struct pai_dir_list list = {0};
	struct pai_err err = PAI_ERR_INIT;
	const struct pai_dir_item *item;
	bool found = false;

	if (!sb || !pai_conf_write(c, sb, "dir/file", "x", 1) ||
	    !pai_conf_write(c, sb, "dir/sub/deeper", "x", 1) ||
	    !pai_conf_write(c, sb, "dir/.hidden", "x", 1)) {
		return;
	}
	CONF_OK(
	    c, pai_sandbox_list_dir(sb, "dir", CONF_CALL(c), &found, &list, &err), err, "list_dir");
	CONF_CHECK(c, found, "a directory is said to be missing");
	CONF_CHECK(c, list.count == 3, "%zu entries, 3 expected", list.count);
	item = item_of(&list, "file");
	CONF_CHECK(c, item && !item->is_directory, "'file' is missing or a directory");
	item = item_of(&list, ".hidden");
	CONF_CHECK(c, item && !item->is_directory, "'.hidden' is missing or a directory");
	item = item_of(&list, "sub");
	CONF_CHECK(c, item && item->is_directory, "'sub' is missing or no directory");
}

static void list_dir_of_what_is_none(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	pai_auto_dir_list struct pai_dir_list list = {0};
	struct pai_err err = PAI_ERR_INIT;
	bool found = true;

	if (!sb || !pai_conf_write(c, sb, "file", "x", 1)) {
		return;
	}
	CONF_OK(c, pai_sandbox_list_dir(sb, "none", CONF_CALL(c), &found, &list, &err), err,
	    "list_dir of a missing directory");
	CONF_CHECK(c, !found && list.count == 0, "a missing directory is said to be there");
	CONF_ERROR(c, pai_sandbox_list_dir(sb, "file", CONF_CALL(c), &found, &list, &err), err,
	    PAI_E_INPUT, "list_dir of a file");
}

static void the_workspace_is_a_directory(struct pai_conf *c)
{
	static const char *const paths[] = {".", "/workspace", "/workspace/", "dir/.."};
	struct pai_sandbox *sb = pai_conf_sandbox(c);

	if (!sb || !pai_conf_write(c, sb, "dir/f", "x", 1)) {
		return;
	}
	for (size_t i = 0; i < PAI_COUNT(paths); i++) {
		pai_auto_dir_list struct pai_dir_list list = {0};
		struct pai_err err = PAI_ERR_INIT;
		bool found = false;

		CONF_OK(c, pai_sandbox_list_dir(sb, paths[i], CONF_CALL(c), &found, &list, &err),
		    err, paths[i]);
		CONF_CHECK(c, found && item_of(&list, "dir"), "'%s' doesn't list 'dir'", paths[i]);
	}
}

/* --- replacement --- */

struct reader {
	struct pai_conf *c;
	struct pai_sandbox *sb;
	atomic_bool stop;
	atomic_uint reads;
	const char *wrong; /* what was seen */
};

static const char *judge(const struct pai_buf *data)
{
	if (data->len != MIB) {
		return data->len == 0 ? "an empty file" : "a part of a file";
	}
	for (size_t i = 1; i < data->len; i++) {
		if (data->data[i] != data->data[0]) {
			return "a mixture of two contents";
		}
	}
	return NULL;
}

static void *read_on(void *arg)
{
	struct reader *r = arg;

	while (!atomic_load(&r->stop) && !r->wrong) {
		pai_auto_buf struct pai_buf data = PAI_BUF_INIT(4 * MIB);
		struct pai_err err = PAI_ERR_INIT;
		bool found = false;

		if (pai_sandbox_read_file(
			r->sb, "f", 4 * MIB, CONF_CALL(r->c), &found, &data, &err) < 0) {
			r->wrong = "an error";
		} else if (!found) {
			r->wrong = "no file";
		} else {
			r->wrong = judge(&data);
		}
		(void)atomic_fetch_add(&r->reads, 1);
	}
	return NULL;
}

static void a_reader_sees_the_old_or_the_new(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	struct reader r = {.c = c, .sb = sb};
	pai_auto_free char *data = malloc(2 * MIB);
	const uint64_t until = pai_deadline_in(REPLACE_MS);
	pthread_t thread;
	bool wrote = true;

	CONF_CHECK(c, data, "out of memory");
	memset(data, 'a', MIB);
	memset(data + MIB, 'b', MIB);
	if (!sb || !pai_conf_write(c, sb, "f", data, MIB)) {
		return;
	}
	CONF_CHECK(c, pthread_create(&thread, NULL, read_on, &r) == 0, "no thread");
	/* Until both have had their turns: a fast backend is through before the thread starts. */
	for (int i = 1; wrote && !pai_deadline_passed(until) &&
			(i <= REPLACEMENTS || atomic_load(&r.reads) < READS_BESIDE);
	     i++) {
		wrote = pai_conf_write(c, sb, "f", data + (i % 2) * MIB, MIB);
	}
	atomic_store(&r.stop, true);
	(void)pthread_join(thread, NULL);
	CONF_CHECK(c, !r.wrong, "during a replacement a reader saw %s", r.wrong ? r.wrong : "");
}

static void replacing_keeps_the_mode(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	pai_auto_run_result struct pai_run_result r = {0};
	pai_auto_run_result struct pai_run_result after = {0};

	if (sb && pai_conf_write(c, sb, "script", "#!/bin/sh\n", 10) &&
	    pai_conf_sh(c, sb, "chmod 755 script && test -x script", &r) &&
	    pai_conf_write(c, sb, "script", "#!/bin/sh\ntrue\n", 15)) {
		(void)!pai_conf_sh(c, sb, "test -x script", &after);
	}
}

static void a_link_is_followed(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	pai_auto_run_result struct pai_run_result r = {0};
	pai_auto_run_result struct pai_run_result after = {0};

	if (sb && pai_conf_write(c, sb, "dir/real", "old", 3) &&
	    pai_conf_sh(c, sb, "ln -s dir/real link", &r) &&
	    pai_conf_holds(c, sb, "link", "old", 3) && pai_conf_write(c, sb, "link", "new", 3) &&
	    pai_conf_holds(c, sb, "dir/real", "new", 3)) {
		(void)!pai_conf_sh(c, sb, "test -L link", &after);
	}
}

#define POSIX (PAI_CAP_COMMANDS | PAI_CAP_POSIX_SHELL)

const struct pai_conf_case pai_conf_file_cases[] = {
    {"files/text_comes_back", 0, text_comes_back},
    {"files/every_byte_comes_back", 0, every_byte_comes_back},
    {"files/an_empty_file_comes_back", 0, an_empty_file_comes_back},
    {"files/a_mebibyte_comes_back", 0, a_mebibyte_comes_back},
    {"files/parents_are_made", 0, parents_are_made},
    {"files/a_shorter_text_replaces_the_whole", 0, a_shorter_text_replaces_the_whole},
    {"files/odd_names_are_names", 0, odd_names_are_names},
    {"files/a_name_of_255_bytes_is_a_name", 0, a_name_of_255_bytes_is_a_name},
    {"files/relative_paths_are_below_the_workspace", 0, relative_paths_are_below_the_workspace},
    {"files/dotdot_leaves_the_workspace", 0, dotdot_leaves_the_workspace},
    {"files/a_missing_file_is_not_found", 0, a_missing_file_is_not_found},
    {"files/a_directory_is_no_file", 0, a_directory_is_no_file},
    {"files/max_bytes_is_a_limit", 0, max_bytes_is_a_limit},
    {"files/max_bytes_0_takes_the_empty_file_only", 0, max_bytes_0_takes_the_empty_file_only},
    {"files/list_dir_tells_names_and_types", 0, list_dir_tells_names_and_types},
    {"files/list_dir_of_what_is_none", 0, list_dir_of_what_is_none},
    {"files/the_workspace_is_a_directory", 0, the_workspace_is_a_directory},
    {"files/a_reader_sees_the_old_or_the_new", 0, a_reader_sees_the_old_or_the_new},
    {"files/replacing_keeps_the_mode", POSIX, replacing_keeps_the_mode},
    {"files/a_link_is_followed", POSIX, a_link_is_followed},
    {NULL, 0, NULL},
};
