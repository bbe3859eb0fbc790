#include "fusefs/internal.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The tables alone: no mount, no server; the notifier delivers nothing, since it is not started. */
static struct pai_fs *fs;
static struct fs_session session;
static struct fs_env *env;

static struct pai_ws_attr attr_of(uint64_t ino, uint32_t mode)
{
	return (struct pai_ws_attr){
	    .id = {.ino = ino, .btime_ns = 7, .dev = 1}, .mode = mode, .nlink = 1};
}

static void setup(void)
{
	static const struct pai_fs_options options = {.fsname = "paifs#test", .timeout_ms = 1000};
	struct pai_ws_attr top = attr_of(2, S_IFDIR | 0755);
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_fs_new(&options, NULL, &fs, &err), 0, "%s", err.msg);
	session = (struct fs_session){.fs = fs, .queue = fs_queue_new(fs->notifier)};
	cr_assert_not_null(session.queue);
	session.top = fs_node_new_locked(fs, NULL, fs->root, "work", &top);
	cr_assert_not_null(session.top);
	session.top->session = &session;
	fs_node_ref_locked(session.top);
	env = fs_env_new(&session);
	cr_assert_not_null(env);
}

static struct fs_node *found(struct fs_node *dir, const char *name, uint64_t ino, uint32_t mode)
{
	struct pai_ws_attr attr = attr_of(ino, mode);
	struct fs_node *n = fs_node_found_locked(fs, env, dir, name, &attr);

	cr_assert_not_null(n);
	n->nlookup++;
	return n;
}

static void path_is(const struct fs_node *n, const char *want)
{
	char *path = NULL;

	cr_assert_eq(fs_node_path_locked(n, &path), 0);
	cr_expect_str_eq(path, want);
	free(path);
}

Test(fs_node, one_object_has_one_number, .init = setup)
{
	struct fs_node *a = found(session.top, "a", 10, S_IFREG);

	cr_expect_eq(found(session.top, "a", 10, S_IFREG), a);
	cr_expect_eq(fs_node_by_id_locked(fs, a->nodeid), a);
	cr_expect_eq(fs_node_by_name_locked(fs, session.top, "a"), a);
	cr_expect_eq(fs_node_by_identity_locked(env, &a->attr.id), a);
	path_is(a, "a");
	path_is(session.top, "");
}

Test(fs_node, another_object_under_the_name_takes_it_over, .init = setup)
{
	struct fs_node *a = found(session.top, "a", 10, S_IFREG);
	struct fs_node *b = found(session.top, "a", 11, S_IFREG);

	cr_expect_neq(a, b);
	cr_expect_neq(a->nodeid, b->nodeid);
	cr_expect_eq(fs_node_by_name_locked(fs, session.top, "a"), b);
	cr_expect_eq(fs_node_by_identity_locked(env, &a->attr.id), a, "it may have another name");
}

Test(fs_node, a_reused_inode_number_is_another_object, .init = setup)
{
	struct fs_node *a = found(session.top, "a", 10, S_IFREG);
	struct pai_ws_attr later = attr_of(10, S_IFREG);

	later.id.btime_ns++;
	cr_expect_neq(fs_node_found_locked(fs, env, session.top, "a", &later), a);
}

Test(fs_node, another_link_is_the_same_file_and_marks_the_old_directory, .init = setup)
{
	struct fs_node *d = found(session.top, "d", 20, S_IFDIR);
	struct fs_node *a = found(d, "a", 10, S_IFREG);

	cr_expect_eq(found(session.top, "b", 10, S_IFREG), a);
	path_is(a, "b");
	cr_expect(d->flags & FS_NODE_ALIASED);
	cr_expect_null(fs_node_by_name_locked(fs, d, "a"));
}

Test(fs_node, a_directory_that_the_sandbox_moved_gets_a_new_number, .init = setup)
{
	struct fs_node *d = found(session.top, "d", 20, S_IFDIR);
	struct fs_node *child = found(d, "a", 10, S_IFREG);
	struct fs_node *e = found(session.top, "e", 20, S_IFDIR);

	cr_expect_neq(d, e);
	cr_expect_eq(fs_node_by_identity_locked(env, &d->attr.id), e);
	cr_expect_eq(found(e, "a", 10, S_IFREG), child, "a file below it is the same");
	path_is(child, "e/a");
}

Test(fs_node, a_move_through_the_mount_keeps_the_number_and_takes_children_along, .init = setup)
{
	struct fs_node *d = found(session.top, "d", 20, S_IFDIR);
	struct fs_node *child = found(d, "a", 10, S_IFREG);

	cr_assert_eq(fs_node_rename_locked(fs, d, session.top, "e"), 0);
	path_is(child, "e/a");
	cr_expect_eq(fs_node_by_name_locked(fs, session.top, "e"), d);
	cr_expect_null(fs_node_by_name_locked(fs, session.top, "d"));
}

/* Heard of late: the sandbox had moved `e` below `d` and away again when the mount moved `d` into
 * it. By the table both would be below each other, and a path have no end. */
Test(fs_node, no_directory_is_put_below_itself, .init = setup, .timeout = 10)
{
	struct fs_node *d = found(session.top, "d", 20, S_IFDIR);
	struct fs_node *e = found(session.top, "e", 21, S_IFDIR);
	struct fs_node *below;

	fs->options.symlinks = PAI_FS_SYMLINKS_RAW;
	below = found(d, "e", 21, S_IFDIR);
	path_is(e, "d/e");
	cr_expect_eq(fs_node_rename_locked(fs, d, e, "d"), -ELOOP);
	cr_expect_eq(fs_node_rename_locked(fs, d, below, "d"), -ELOOP);
	cr_expect_eq(fs_node_rename_locked(fs, d, d, "d"), -ELOOP);
	path_is(d, "d");
	path_is(e, "d/e");
	cr_expect_eq(fs_node_by_name_locked(fs, session.top, "d"), d);
	cr_expect_eq(found(e, "d", 20, S_IFDIR)->parent, e, "found there, it has a new number");
	path_is(d, "d");
}

Test(fs_node, a_renamed_file_is_no_longer_proven, .init = setup)
{
	struct fs_node *a = found(session.top, "a", 10, S_IFREG);

	a->flags |= FS_NODE_PAGES | FS_NODE_PROVEN;
	cr_assert_eq(fs_node_rename_locked(fs, a, session.top, "b"), 0);
	cr_expect_not(a->flags & FS_NODE_PROVEN);
}

Test(fs_node, is_freed_with_its_last_look_up, .init = setup)
{
	size_t before = fs->node_count;
	struct fs_node *d = found(session.top, "d", 20, S_IFDIR);
	struct fs_node *a = found(d, "a", 10, S_IFREG);
	uint64_t d_id = d->nodeid, a_id = a->nodeid;

	fs_node_forget_locked(fs, d, 1);
	cr_expect_eq(fs_node_by_id_locked(fs, d_id), d, "a child refers to it");
	fs_node_forget_locked(fs, a, 1);
	cr_expect_null(fs_node_by_id_locked(fs, a_id));
	cr_expect_null(fs_node_by_id_locked(fs, d_id));
	cr_expect_eq(fs->node_count, before);
}

Test(fs_node, tables_hold_many, .init = setup)
{
	char name[32];

	for (uint64_t i = 0; i < 5000; i++) {
		(void)snprintf(name, sizeof(name), "f%llu", (unsigned long long)i);
		(void)found(session.top, name, 1000 + i, S_IFREG);
	}
	for (uint64_t i = 0; i < 5000; i++) {
		struct pai_ws_attr attr = attr_of(1000 + i, S_IFREG);
		struct fs_node *n;

		(void)snprintf(name, sizeof(name), "f%llu", (unsigned long long)i);
		n = fs_node_by_name_locked(fs, session.top, name);
		cr_assert_not_null(n);
		cr_assert_eq(fs_node_by_identity_locked(env, &attr.id), n);
		cr_assert_eq(fs_node_by_id_locked(fs, n->nodeid), n);
		fs_node_forget_locked(fs, n, 1);
	}
	cr_expect_eq(env->ident_count, 0);
}

Test(fs_node, misses_are_remembered_up_to_a_cap, .init = setup)
{
	char name[32];

	for (int i = 0; i < FS_NEGATIVES_MAX; i++) {
		(void)snprintf(name, sizeof(name), "n%d", i);
		cr_assert(fs_negative_add_locked(session.top, name));
	}
	cr_expect(fs_negative_add_locked(session.top, "n0"), "it is there already");
	cr_expect_not(fs_negative_add_locked(session.top, "one more"));
	cr_expect(fs_negative_take_locked(session.top, "n5"));
	cr_expect_not(fs_negative_take_locked(session.top, "n5"));
	cr_expect(fs_negative_add_locked(session.top, "one more"));
}

Test(fs_node, what_is_gone_has_no_path, .init = setup)
{
	struct fs_node *a = found(session.top, "a", 10, S_IFREG);
	char *path = NULL;

	a->flags |= FS_NODE_GONE;
	cr_expect_eq(fs_node_path_locked(a, &path), -ESTALE);
}

/* As after each overflow of the watches while a large tree is being removed. */
Test(fs_node, what_waits_to_be_told_is_not_queued_again, .init = setup)
{
	struct fs_node *d = found(session.top, "d", 20, S_IFDIR);
	struct fs_node *a = found(d, "a", 10, S_IFREG);
	uint32_t of_dir, of_file;

	d->flags |= FS_NODE_TOLD;
	a->flags |= FS_NODE_TOLD;
	fs_env_forget_all(env);
	of_dir = d->refs;
	of_file = a->refs;
	a->flags |= FS_NODE_TOLD;
	fs_env_forget_all(env);
	cr_expect_eq(d->refs, of_dir, "each item refers to a node");
	cr_expect_eq(a->refs, of_file);
	cr_assert_eq(fs_node_rename_locked(fs, a, d, "b"), 0);
	fs_env_forget_all(env);
	cr_expect_eq(d->refs, of_dir + 1, "another name");
}
