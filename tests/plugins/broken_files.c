/* Providers that break one promise about files, and two that break the suite's own ground. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "providers/base/cancel.h"
#include "tests/plugins/broken.h"

#define CUT 65536

/* --- content --- */

static int line_ends_translated(READ_ARGS)
{
	int r = forward_read(sb, path, max_bytes, call, found, ret, err);
	size_t n = 0;

	for (size_t i = 0; i < ret->len; i++) {
		if (ret->data[i] != '\r') {
			ret->data[n++] = ret->data[i];
		}
	}
	ret->len = n;
	return r;
}
BREAK_SANDBOX(line_ends_translated, read_file)

static int high_bits_lost(READ_ARGS)
{
	int r = forward_read(sb, path, max_bytes, call, found, ret, err);

	for (size_t i = 0; i < ret->len; i++) {
		ret->data[i] &= 0x7f;
	}
	return r;
}
BREAK_SANDBOX(high_bits_lost, read_file)

static int empty_is_missing(READ_ARGS)
{
	int r = forward_read(sb, path, max_bytes, call, found, ret, err);

	*found = *found && ret->len > 0;
	return r;
}
BREAK_SANDBOX(empty_is_missing, read_file)

static int read_cut(READ_ARGS)
{
	int r = forward_read(sb, path, max_bytes, call, found, ret, err);

	ret->len = ret->len > CUT ? CUT : ret->len;
	return r;
}
BREAK_SANDBOX(read_cut, read_file)

static int parents_not_made(WRITE_ARGS)
{
	struct pai_dir_list list = {0};
	char parent[512];
	bool found = false;
	int r;

	(void)snprintf(parent, sizeof(parent), "%s/..", path);
	r = forward_list_dir(sb, parent, call, &found, &list, err);
	pai_dir_list_fini(&list);
	if (r == 0 && !found) {
		return pai_err_set(err, PAI_E_INPUT, "no such directory");
	}
	return r < 0 ? r : forward_write(sb, path, data, len, call, err);
}
BREAK_SANDBOX(parents_not_made, write_file)

static int old_tail_stays(WRITE_ARGS)
{
	struct pai_buf old = PAI_BUF_INIT(1u << 21);
	bool found = false;
	int r = forward_read(sb, path, UINT64_MAX, call, &found, &old, err);

	if (r == 0 && old.len > len) {
		memcpy(old.data, data, len);
		r = forward_write(sb, path, old.data, old.len, call, err);
	} else {
		*err = (struct pai_err)PAI_ERR_INIT;
		r = forward_write(sb, path, data, len, call, err);
	}
	pai_buf_fini(&old);
	return r;
}
BREAK_SANDBOX(old_tail_stays, write_file)

/* --- names and paths --- */

static int names_with_newlines_dropped(LIST_DIR_ARGS)
{
	int r = forward_list_dir(sb, path, call, found, ret, err);

	for (size_t i = 0; r == 0 && i < ret->count; i++) {
		if (strchr(ret->items[i].name, '\n')) {
			free(ret->items[i].name);
			ret->items[i] = ret->items[--ret->count];
		}
	}
	return r;
}
BREAK_SANDBOX(names_with_newlines_dropped, list_dir)

static int long_names_refused(WRITE_ARGS)
{
	return strlen(strrchr(path, '/')) > 128 ? pai_err_set(err, PAI_E_INPUT, "name too long")
						: forward_write(sb, path, data, len, call, err);
}
BREAK_SANDBOX(long_names_refused, write_file)

static int outside_is_inside(READ_ARGS)
{
	char inside[512];

	(void)snprintf(inside, sizeof(inside), "/workspace%s",
	    strncmp(path, "/workspace", 10) == 0 ? path + 10 : path);
	return forward_read(sb, inside, max_bytes, call, found, ret, err);
}
BREAK_SANDBOX(outside_is_inside, read_file)

static int missing_is_an_error(READ_ARGS)
{
	int r = forward_read(sb, path, max_bytes, call, found, ret, err);

	return r == 0 && !*found ? pai_err_errno(err, ENOENT, "no such file") : r;
}
BREAK_SANDBOX(missing_is_an_error, read_file)

static int directory_is_missing(READ_ARGS)
{
	int r = forward_read(sb, path, max_bytes, call, found, ret, err);

	if (r < 0 && err->code == PAI_E_INPUT) {
		*err = (struct pai_err)PAI_ERR_INIT;
		*found = false;
		return 0;
	}
	return r;
}
BREAK_SANDBOX(directory_is_missing, read_file)

/* --- limits --- */

static int max_bytes_off_by_one(READ_ARGS)
{
	return forward_read(sb, path,
	    max_bytes > 0 && max_bytes < UINT64_MAX ? max_bytes - 1 : max_bytes, call, found, ret,
	    err);
}
BREAK_SANDBOX(max_bytes_off_by_one, read_file)

static int max_bytes_0_is_no_limit(READ_ARGS)
{
	return forward_read(sb, path, max_bytes ? max_bytes : UINT64_MAX, call, found, ret, err);
}
BREAK_SANDBOX(max_bytes_0_is_no_limit, read_file)

/* --- directories --- */

static int types_lost(LIST_DIR_ARGS)
{
	int r = forward_list_dir(sb, path, call, found, ret, err);

	for (size_t i = 0; i < ret->count; i++) {
		ret->items[i].is_directory = false;
	}
	return r;
}
BREAK_SANDBOX(types_lost, list_dir)

static int missing_directory_is_empty(LIST_DIR_ARGS)
{
	int r = forward_list_dir(sb, path, call, found, ret, err);

	*found = true;
	return r;
}
BREAK_SANDBOX(missing_directory_is_empty, list_dir)

static int workspace_is_missing(LIST_DIR_ARGS)
{
	if (strcmp(path, "/workspace") == 0) {
		*found = false;
		return 0;
	}
	return forward_list_dir(sb, path, call, found, ret, err);
}
BREAK_SANDBOX(workspace_is_missing, list_dir)

/* --- replacement --- */

/* Two requests, a millisecond apart. */
static int replaced_in_two_steps(WRITE_ARGS)
{
	int r = forward_write(sb, path, data, len / 2, call, err);

	r = r < 0 ? r : pai_call_sleep(call, pai_deadline_in(1), err);
	return r < 0 ? r : forward_write(sb, path, data, len, call, err);
}
BREAK_SANDBOX(replaced_in_two_steps, write_file)

/* Removes what is there and makes a new file: another mode, and a link is gone. */
static int replaced_by_a_new_file(WRITE_ARGS)
{
	struct pai_run_result result = {0};
	struct pai_run_input in = {0};
	char command[512];
	int r;

	(void)snprintf(command, sizeof(command), "rm -f '%s'", path);
	in.command = command;
	r = forward_run(sb, &in, call, &result, err);
	pai_run_result_fini(&result);
	return r < 0 ? r : forward_write(sb, path, data, len, call, err);
}
BREAK_SANDBOX(replaced_by_a_new_file, write_file)

/* --- the suite's own ground --- */

static int crashes(WRITE_ARGS)
{
	(void)sb, (void)path, (void)data, (void)len, (void)call, (void)err;
	abort();
}
BREAK_SANDBOX(crashes, write_file)

static int hangs(WRITE_ARGS)
{
	(void)sb, (void)path, (void)data, (void)len, (void)call, (void)err;
	for (;;) {
		(void)pause();
	}
	return 0;
}
BREAK_SANDBOX(hangs, write_file)

static int exits(WRITE_ARGS)
{
	(void)sb, (void)path, (void)data, (void)len, (void)call, (void)err;
	_exit(0);
}
BREAK_SANDBOX(exits, write_file)

static const struct fault faults[] = {
    FAULT(line_ends_translated),
    FAULT(high_bits_lost),
    FAULT(empty_is_missing),
    FAULT(read_cut),
    FAULT(parents_not_made),
    FAULT(old_tail_stays),
    FAULT(names_with_newlines_dropped),
    FAULT(long_names_refused),
    FAULT(outside_is_inside),
    FAULT(missing_is_an_error),
    FAULT(directory_is_missing),
    FAULT(max_bytes_off_by_one),
    FAULT(max_bytes_0_is_no_limit),
    FAULT(types_lost),
    FAULT(missing_directory_is_empty),
    FAULT(workspace_is_missing),
    FAULT(replaced_in_two_steps),
    FAULT(replaced_by_a_new_file),
    FAULT(crashes),
    FAULT(hangs),
    FAULT(exits),
    {NULL, NULL},
};
BROKEN_PLUGIN("broken_files", faults);
