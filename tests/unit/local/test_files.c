#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "providers/local/local.h"
#include "tests/unit/local/fixture.h"

static struct pai_sandbox *sb;

static void set_up(void)
{
	local_set_up();
	sb = local_create(NULL);
}

static void tear_down(void)
{
	pai_sandbox_free(sb);
	local_tear_down();
}

TestSuite(local_files, .init = set_up, .fini = tear_down, .timeout = 60);

static int get(const char *path, uint64_t max, char *out, bool *found, struct pai_err *err)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(1 << 20);
	int r;

	*err = (struct pai_err)PAI_ERR_INIT;
	*found = false;
	r = pai_sandbox_read_file(sb, path, max, &call, found, &text, err);
	(void)snprintf(out, 256, "%s", text.data ? text.data : "");
	return r;
}

static int put(const char *path, const char *text, struct pai_err *err)
{
	*err = (struct pai_err)PAI_ERR_INIT;
	return pai_sandbox_write_file(sb, path, text, strlen(text), &call, err);
}

static void link_at(const char *text, const char *name)
{
	char path[512];

	(void)snprintf(path, sizeof(path), "%s", local_path(sb, name));
	cr_assert_eq(symlink(text, path), 0, "%s", path);
}

Test(local_files, links_are_followed_inside_and_never_out)
{
	static const struct {
		const char *path;
		bool served;
	} rows[] = {
	    {"rel", true},
	    {"abs", true},
	    {"abs_dir/f", true},
	    {"up/f", true},
	    {"tmp_link", true},
	    {"chain", true},
	    {"out_abs", false},
	    {"out_rel", false},
	    {"proc", false},
	    {"out_dir/passwd", false},
	    {"loop", false},
	    {"loop_abs", false},
	};
	struct pai_err err;
	char text[256];
	bool found;

	cr_assert_eq(put("/workspace/d/e/f", "inside", &err), 0);
	cr_assert_eq(put("/tmp/t", "inside", &err), 0);
	link_at("d/e/f", "workspace/rel");
	link_at("/workspace/d/e/f", "workspace/abs");
	link_at("/workspace/d/e", "workspace/abs_dir");
	link_at("d/e/../e", "workspace/up");
	link_at("/tmp/t", "workspace/tmp_link");
	link_at("/workspace/abs", "workspace/chain");
	link_at("/etc/passwd", "workspace/out_abs");
	link_at("../../../../../../etc/passwd", "workspace/out_rel");
	link_at("/proc/self/root/etc/passwd", "workspace/proc");
	link_at("/etc", "workspace/out_dir");
	link_at("loop", "workspace/loop");
	link_at("/workspace/loop_abs", "workspace/loop_abs");
	for (size_t i = 0; i < PAI_COUNT(rows); i++) {
		int r = get(rows[i].path, 1000, text, &found, &err);

		cr_assert_eq(r == 0 && found, rows[i].served, "%s: %s", rows[i].path, err.msg);
		if (rows[i].served) {
			cr_assert_str_eq(text, "inside", "%s", rows[i].path);
		}
	}
}

Test(local_files, a_write_through_a_link_lands_inside)
{
	struct pai_err err;
	char text[256];
	bool found;

	cr_assert_eq(put("real/deep/x", "", &err), 0);
	link_at("/workspace/real/deep", "workspace/l");
	link_at("../g", "workspace/real/deep/f");
	cr_assert_eq(put("l/f", "there", &err), 0, "%s", err.msg);
	cr_assert_eq(get("real/g", 100, text, &found, &err), 0);
	cr_assert(found, "'..' in a link is of the real directory");
	cr_assert_eq(put("l/new/er", "made", &err), 0, "%s", err.msg);
	cr_assert_eq(get("real/deep/new/er", 100, text, &found, &err), 0);
	cr_assert_str_eq(text, "made");
	link_at("/etc/pai-unit-nowhere", "workspace/out");
	cr_assert_lt(put("out", "no", &err), 0);
	cr_assert_eq(err.code, PAI_E_INPUT);
	cr_assert_eq(access("/etc/pai-unit-nowhere", F_OK), -1);
	link_at("../../../../../../tmp/pai-unit-nowhere", "workspace/out_rel");
	cr_assert_lt(put("out_rel", "no", &err), 0);
	cr_assert_eq(access("/tmp/pai-unit-nowhere", F_OK), -1);
	link_at("/etc", "workspace/out_dir");
	cr_assert_lt(put("out_dir/pai-unit-nowhere", "no", &err), 0);
	cr_assert_eq(access("/etc/pai-unit-nowhere", F_OK), -1);
}

Test(local_files, special_files_are_refused_and_block_nobody)
{
	struct pai_err err;
	char text[256];
	bool found;

	cr_assert_eq(mkfifo(local_path(sb, "workspace/fifo"), 0600), 0);
	cr_assert_lt(get("fifo", 10, text, &found, &err), 0);
	cr_assert_eq(err.code, PAI_E_INPUT);
	cr_assert_lt(put("fifo", "x", &err), 0);
	cr_assert_eq(err.code, PAI_E_INPUT);
	cr_assert_lt(get("/workspace", 10, text, &found, &err), 0);
	cr_assert_eq(err.code, PAI_E_INPUT);
	cr_assert_lt(put("/workspace", "x", &err), 0);
	cr_assert_eq(err.code, PAI_E_INPUT);
}

Test(local_files, paths_elsewhere_are_refused)
{
	static const char *const paths[] = {
	    "/etc/passwd", "/", "/home/user/x", "/tmpx", "/workspacex", "/workspace/../etc/passwd"};
	struct pai_err err;
	char text[256];
	bool found;

	for (size_t i = 0; i < PAI_COUNT(paths); i++) {
		cr_assert_lt(get(paths[i], 10, text, &found, &err), 0, "%s", paths[i]);
		cr_assert_eq(err.code, PAI_E_INPUT, "%s", paths[i]);
	}
}

Test(local_files, the_limit_is_exact)
{
	struct pai_err err;
	char text[256];
	bool found;

	cr_assert_eq(put("f", "12345", &err), 0);
	cr_assert_eq(get("f", 5, text, &found, &err), 0);
	cr_assert_str_eq(text, "12345");
	cr_assert_lt(get("f", 4, text, &found, &err), 0);
	cr_assert(err.code == PAI_E_FILE_TOO_LARGE && err.limit_bytes == 4);
}

Test(local_files, a_replaced_file_keeps_mode_and_owner)
{
	struct pai_err err;
	struct stat st;

	cr_assert_eq(put("f", "a", &err), 0);
	cr_assert_eq(chmod(local_path(sb, "workspace/f"), 04751), 0);
	if (geteuid() == 0) {
		cr_assert_eq(chown(local_path(sb, "workspace/f"), 1234, 4321), 0);
		cr_assert_eq(chmod(local_path(sb, "workspace/f"), 04751), 0);
	}
	cr_assert_eq(put("f", "b", &err), 0);
	cr_assert_eq(stat(local_path(sb, "workspace/f"), &st), 0);
	cr_assert_eq(st.st_mode & 07777, 04751);
	if (geteuid() == 0) {
		cr_assert(st.st_uid == 1234 && st.st_gid == 4321);
	}
}

Test(local_files, what_was_left_half_made_stays_out_of_sight)
{
	pai_auto_dir_list struct pai_dir_list list = {0};
	struct pai_err err;
	bool found;

	/* No place for it: the write fails and leaves nothing. */
	cr_assert_eq(put("d/f", "a", &err), 0);
	cr_assert_lt(put("d/f/g", "a", &err), 0);
	cr_assert_eq(pai_sandbox_list_dir(sb, "d", &call, &found, &list, &err), 0);
	cr_assert_eq(list.count, 1);
}

Test(local_files, a_hostile_tree_is_removed_whole)
{
	char path[4200];
	char outside[] = "/tmp/pai-unit-outside-XXXXXX";
	int fd;
	int depth;

	cr_assert(mkdtemp(outside));
	link_at(outside, "workspace/link");
	cr_assert_eq(mkdir(local_path(sb, "workspace/closed"), 0700), 0);
	local_put(local_path(sb, "workspace/closed/file"), "x");
	cr_assert_eq(mkdir(local_path(sb, "workspace/closed/sub"), 0700), 0);
	local_put(local_path(sb, "workspace/closed/sub/file"), "x");
	cr_assert_eq(chmod(local_path(sb, "workspace/closed/sub"), 0), 0);
	cr_assert_eq(chmod(local_path(sb, "workspace/closed"), 0), 0);
	local_put(local_path(sb, "workspace/.pai-rm-0"), "a name of ours");
	cr_assert_eq(mkdir(local_path(sb, "workspace/.pai-rm-1"), 0700), 0);
	/* Deeper than a path and than the descriptors of a process. */
	(void)snprintf(path, sizeof(path), "%s", local_path(sb, "workspace"));
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (depth = 0; depth < 3000; depth++) {
		int next;

		cr_assert_eq(mkdirat(fd, "dddd", 0700), 0);
		next = openat(fd, "dddd", O_PATH | O_DIRECTORY | O_CLOEXEC);
		(void)close(fd);
		fd = next;
	}
	(void)close(fd);
	{
		struct pai_err err = PAI_ERR_INIT;

		cr_assert_eq(pai_sandbox_kill(sb, &call, &err), 0, "%s", err.msg);
	}
	cr_assert_eq(access(local_path(sb, ""), F_OK), -1);
	cr_assert_eq(rmdir(outside), 0, "untouched, and still there");
}
