/*
 * tree: a file tree in memory: directories, files, symbolic and hard links, with inode numbers and
 * times. Permissions are kept and shown, not enforced. `/` is the root; a new tree holds
 * /workspace and /tmp.
 *
 * Paths are absolute or relative to /; `.` and `..` are resolved as a kernel does, after links.
 * Functions return 0 or a negative errno, the one that the system call would give.
 * Threading: none; the caller holds a lock of its own.
 */
#ifndef PAI_MEMORY_TREE_H
#define PAI_MEMORY_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "providers/base/err.h"

/* What one tree may hold: a command of a test that runs away ends in ENOSPC, not in swap. */
#define PAI_TREE_MAX_BYTES (1ull << 30)
#define PAI_TREE_MAX_NODES 1000000u

struct pai_tree;
struct pai_tree_node;
struct pai_tree_entry {
	char *name;
	struct pai_tree_node *node;
};
struct pai_tree_node {
	uint64_t ino;
	mode_t mode; /* with the type */
	uint32_t nlink;
	char *data; /* a file's bytes or a link's target (NUL-terminated); NULL while empty */
	size_t size;
	struct pai_tree_node *parent; /* directories */
	struct pai_tree_entry *entries;
	size_t count, cap;
	int64_t atime_ns, mtime_ns, ctime_ns, btime_ns; /* since 1970 */
};
/* Where a path leads: the directory and name of its last component, and what is there. `name` is
 * "" for the root and for a path that ends in `.` or `..`. */
struct pai_tree_spot {
	struct pai_tree_node *dir;
	char name[256];
	struct pai_tree_node *node; /* NULL: nothing has that name */
};

struct pai_tree *pai_tree_new(void);
void pai_tree_free(struct pai_tree *t);
/* `follow`: a link at the end is followed. A missing last component is success with node NULL. */
int pai_tree_find(
    struct pai_tree *t, const char *path, bool follow, struct pai_tree_spot *ret) PAI_WARN_UNUSED;
/* The node itself: ENOENT when there is none. */
int pai_tree_get(
    struct pai_tree *t, const char *path, bool follow, struct pai_tree_node **ret) PAI_WARN_UNUSED;
int pai_tree_mkdir(struct pai_tree *t, const char *path, mode_t mode) PAI_WARN_UNUSED;
/* mkdir -p; the directories that are there already are left alone. */
int pai_tree_mkdir_all(struct pai_tree *t, const char *path, mode_t mode) PAI_WARN_UNUSED;
/* The whole content at once; follows links; a new file is 0644, an old one keeps its inode. */
int pai_tree_write(struct pai_tree *t, const char *path, const void *data, size_t len,
    bool append) PAI_WARN_UNUSED;
/* Puts `len` bytes at `offset`; a gap is zeros. */
int pai_tree_write_at(struct pai_tree *t, const char *path, uint64_t offset, const void *data,
    size_t len) PAI_WARN_UNUSED;
int pai_tree_resize(struct pai_tree *t, struct pai_tree_node *file, uint64_t size) PAI_WARN_UNUSED;
int pai_tree_symlink(struct pai_tree *t, const char *target, const char *path) PAI_WARN_UNUSED;
int pai_tree_link(struct pai_tree *t, const char *from, const char *to) PAI_WARN_UNUSED;
int pai_tree_rename(struct pai_tree *t, const char *from, const char *to) PAI_WARN_UNUSED;
int pai_tree_unlink(struct pai_tree *t, const char *path) PAI_WARN_UNUSED;
int pai_tree_rmdir(struct pai_tree *t, const char *path) PAI_WARN_UNUSED;
void pai_tree_chmod(struct pai_tree_node *n, mode_t mode);
int64_t pai_tree_now_ns(void);

#endif
