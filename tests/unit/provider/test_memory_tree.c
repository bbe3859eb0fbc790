#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "providers/memory/tree.h"

static struct pai_tree *tree;
static void make_tree(void)
{
	tree = pai_tree_new();
	cr_assert(tree);
}
static void free_tree(void)
{
	pai_tree_free(tree);
}

TestSuite(memory_tree, .init = make_tree, .fini = free_tree, .timeout = 20);

static struct pai_tree_node *get(const char *path)
{
	struct pai_tree_node *n = NULL;

	cr_assert_eq(pai_tree_get(tree, path, false, &n), 0, "%s", path);
	return n;
}

static void put(const char *path, const char *text)
{
	cr_assert_eq(pai_tree_write(tree, path, text, strlen(text), false), 0, "%s", path);
}

Test(memory_tree, link_counts_are_a_file_systems)
{
	cr_expect_eq(get("/")->nlink, 4); /* itself, its name, workspace, tmp */
	cr_assert_eq(pai_tree_mkdir(tree, "/workspace/a", 0755), 0);
	cr_assert_eq(pai_tree_mkdir(tree, "/workspace/b", 0755), 0);
	cr_assert_eq(pai_tree_mkdir(tree, "/workspace/a/c", 0755), 0);
	cr_expect_eq(get("/workspace")->nlink, 4);
	cr_assert_eq(pai_tree_rename(tree, "/workspace/a/c", "/workspace/b/c"), 0);
	cr_expect_eq(get("/workspace/a")->nlink, 2);
	cr_expect_eq(get("/workspace/b")->nlink, 3);
	cr_assert_eq(pai_tree_rename(tree, "/workspace/b/c", "/workspace/a"), 0);
	cr_expect_eq(get("/workspace")->nlink, 4);
	cr_expect_eq(get("/workspace/b")->nlink, 2);
	cr_expect_eq(get("/workspace/a")->nlink, 2);
	cr_assert_eq(pai_tree_rmdir(tree, "/workspace/a"), 0);
	cr_expect_eq(get("/workspace")->nlink, 3);
	put("/workspace/f", "x");
	cr_assert_eq(pai_tree_link(tree, "/workspace/f", "/workspace/g"), 0);
	cr_expect_eq(get("/workspace/g")->nlink, 2);
	cr_assert_eq(pai_tree_unlink(tree, "/workspace/f"), 0);
	cr_expect_eq(get("/workspace/g")->nlink, 1);
}

Test(memory_tree, refusals_have_the_kernels_errno)
{
	static const char text[] = "x";

	cr_assert_eq(pai_tree_mkdir(tree, "/workspace/d", 0755), 0);
	put("/workspace/f", text);
	put("/workspace/d/in", text);
	cr_expect_eq(pai_tree_mkdir(tree, "/workspace/d", 0755), -EEXIST);
	cr_expect_eq(pai_tree_mkdir(tree, "/workspace/no/d", 0755), -ENOENT);
	cr_expect_eq(pai_tree_mkdir(tree, "/workspace/f/d", 0755), -ENOTDIR);
	cr_expect_eq(pai_tree_rmdir(tree, "/workspace/d"), -ENOTEMPTY);
	cr_expect_eq(pai_tree_rmdir(tree, "/workspace/f"), -ENOTDIR);
	cr_expect_eq(pai_tree_rmdir(tree, "/"), -EBUSY);
	cr_expect_eq(pai_tree_unlink(tree, "/workspace/d"), -EISDIR);
	cr_expect_eq(pai_tree_link(tree, "/workspace/d", "/workspace/l"), -EPERM);
	cr_expect_eq(pai_tree_link(tree, "/workspace/f", "/workspace/d"), -EEXIST);
	cr_expect_eq(pai_tree_rename(tree, "/workspace/no", "/workspace/x"), -ENOENT);
	cr_expect_eq(pai_tree_rename(tree, "/workspace/d", "/workspace/f"), -ENOTDIR);
	cr_expect_eq(pai_tree_rename(tree, "/workspace/f", "/workspace/d"), -EISDIR);
	cr_expect_eq(pai_tree_rename(tree, "/workspace/d", "/workspace/d/in2"), -EINVAL);
	cr_expect_eq(pai_tree_rename(tree, "/workspace", "/"), -EBUSY);
	cr_expect_eq(pai_tree_write(tree, "/workspace/d", text, 1, false), -EISDIR);
	cr_expect_eq(pai_tree_symlink(tree, "", "/workspace/l"), -ENOENT);
	cr_expect_eq(pai_tree_resize(tree, get("/workspace/f"), UINT64_MAX), -ENOSPC);
	cr_expect_eq(pai_tree_write_at(tree, "/workspace/f", UINT64_MAX - 1, text, 1), -ENOSPC);
}

Test(memory_tree, links_lead_where_their_text_says)
{
	struct pai_tree_node *n = NULL;

	cr_assert_eq(pai_tree_mkdir_all(tree, "/workspace/a/b", 0755), 0);
	put("/workspace/a/f", "x");
	cr_assert_eq(pai_tree_symlink(tree, "../f", "/workspace/a/b/up"), 0);
	cr_assert_eq(pai_tree_symlink(tree, "/workspace/a", "/workspace/abs"), 0);
	cr_expect_eq(pai_tree_get(tree, "/workspace/abs/b/up", true, &n), 0);
	cr_expect_eq(n, get("/workspace/a/f"));
	/* `..` after a link is the parent of where it leads. */
	cr_assert_eq(pai_tree_symlink(tree, "a/b", "/workspace/deep"), 0);
	cr_expect_eq(pai_tree_get(tree, "/workspace/deep/../f", true, &n), 0);
	cr_assert_eq(pai_tree_symlink(tree, "new", "/workspace/dangling"), 0);
	put("/workspace/dangling", "through");
	cr_expect_eq(get("/workspace/new")->size, 7);
	cr_assert_eq(pai_tree_symlink(tree, "loop2", "/workspace/loop1"), 0);
	cr_assert_eq(pai_tree_symlink(tree, "loop1", "/workspace/loop2"), 0);
	cr_expect_eq(pai_tree_get(tree, "/workspace/loop1/x", true, &n), -ELOOP);
	cr_expect_eq(pai_tree_get(tree, "/workspace/loop1", false, &n), 0);
	cr_expect_eq(pai_tree_get(tree, "/../../workspace/./a/../a/f", true, &n), 0);
}

Test(memory_tree, sizes_and_gaps_are_zeros)
{
	struct pai_tree_node *n;

	put("/f", "abc");
	n = get("/f");
	cr_assert_eq(pai_tree_resize(tree, n, 1), 0);
	cr_assert_eq(pai_tree_resize(tree, n, 3), 0);
	cr_expect_arr_eq(n->data, "a\0\0", 3);
	cr_assert_eq(pai_tree_write_at(tree, "/f", 5, "z", 1), 0);
	cr_expect_eq(n->size, 6);
	cr_expect_arr_eq(n->data, "a\0\0\0\0z", 6);
	cr_assert_eq(pai_tree_write(tree, "/f", "!", 1, true), 0);
	cr_expect_eq(n->size, 7);
}

Test(memory_tree, a_deep_tree_is_freed_without_a_deep_stack)
{
	static char path[400000];
	size_t len = 0;

	for (int i = 0; i < 2000; i++) {
		len += (size_t)snprintf(path + len, sizeof(path) - len, "/d");
	}
	cr_expect_eq(pai_tree_mkdir_all(tree, path, 0755), 0);
}
